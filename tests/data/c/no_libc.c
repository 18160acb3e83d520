/* Prints the CRC-32C of each tensor that is linked with the program, in the order of their names. Of Windows it needs
 * kernel32 alone, so that linkers without a C library take it: HEADER is what emitter wrote, NAME the name in it. */

#include HEADER
#include "emitter.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#ifdef _M_IX86
#define WINAPI __stdcall
#else
#define WINAPI
#endif

__declspec(dllimport) void *WINAPI GetStdHandle(unsigned long);
__declspec(dllimport) int WINAPI WriteFile(void *, const void *, unsigned long, unsigned long *, void *);
__declspec(dllimport) void WINAPI ExitProcess(unsigned int);

/* Compilers put calls of these for loops and assignments. */
void *memcpy(void *to, const void *from, size_t size)
{
    volatile unsigned char *p = (volatile unsigned char *)to;
    const unsigned char *q = (const unsigned char *)from;
    while (size--)
        *p++ = *q++;
    return to;
}

void *memset(void *to, int value, size_t size)
{
    volatile unsigned char *p = (volatile unsigned char *)to;
    while (size--)
        *p++ = (unsigned char)value;
    return to;
}

static void print_crc(uint32_t crc)
{
    char line[9];
    unsigned long written;
    int digit;
    for (digit = 0; digit < 8; digit++)
        line[digit] = "0123456789abcdef"[crc >> (28 - 4 * digit) & 15];
    line[8] = '\n';
    WriteFile(GetStdHandle((unsigned long)-11), line, sizeof line, &written, 0); /* STD_OUTPUT_HANDLE */
}

int mainCRTStartup(void)
{
    emitter_reader reader;
    uint32_t i;
    if (emitter_open_expect(&reader, JOIN(NAME, _data)(), JOIN(NAME, _data_size)(), JOIN(NAME, _SCHEMA)) != EMITTER_OK)
        ExitProcess(1);
    for (i = 0; i < emitter_count(&reader); i++) {
        emitter_tensor tensor;
        if (emitter_at(&reader, i, &tensor) != EMITTER_OK || emitter_check_tensor(&tensor) != EMITTER_OK)
            ExitProcess(2);
        print_crc(emitter_crc32c(tensor.data, (size_t)tensor.nbytes, 0));
    }
    ExitProcess(0);
    return 0;
}
