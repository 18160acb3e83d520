"""What other projects' tools and runtimes expect of an object, and what is in the libraries that they make."""
