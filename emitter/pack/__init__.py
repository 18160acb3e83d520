"""The pack: format and layout."""
