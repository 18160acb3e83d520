/* Opens DLLs as a program of Windows does, and prints what their packs hold: open_dll DLL NAME [DLL NAME]... */

#include <string.h>
#include <windows.h>

#include "print.h"

static int print_dll(const char *path, const char *name)
{
    char symbol[256];
    MEMORY_BASIC_INFORMATION memory;
    emitter_reader reader;
    HMODULE dll = LoadLibraryA(path);
    const void *pack, *same;
    const size_t *size;
    if (!dll || strlen(name) + sizeof "_size" > sizeof symbol) {
        fprintf(stderr, "error: LoadLibrary: %lu\n", GetLastError());
        return 1;
    }
    strcpy(symbol, name);
    strcat(symbol, "_size");
    pack = (const void *)GetProcAddress(dll, name);
    same = (const void *)GetProcAddress(dll, "emitter_pack");
    size = (const size_t *)GetProcAddress(dll, symbol);
    if (!pack || same != pack || !size || GetProcAddress(dll, "no_such_name")) {
        fprintf(stderr, "error: GetProcAddress: %p %p %p\n", pack, same, (const void *)size);
        return 1;
    }
    /* Mapped from the file, and not writable: the pages are shared by all programs. */
    if (!VirtualQuery(pack, &memory, sizeof memory) || memory.Protect != PAGE_READONLY || memory.Type != MEM_IMAGE) {
        fprintf(stderr, "error: protection %lx, type %lx\n", memory.Protect, memory.Type);
        return 1;
    }
    if (emitter_open(&reader, pack, *size) != EMITTER_OK)
        return 1;
    return print_pack(&reader);
}

int main(int argc, char **argv)
{
    int i, failed = 0;
    for (i = 1; i + 1 < argc; i += 2)
        failed |= print_dll(argv[i], argv[i + 1]);
    return failed;
}
