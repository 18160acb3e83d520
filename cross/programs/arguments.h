/* SPDX-License-Identifier: 0BSD
 * The arguments of main in UTF-8, which is what emitter.h takes. Windows passes them in a code page that cannot say every path. */

#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#ifdef _WIN32

#include <windows.h>

#include <shellapi.h>
#include <stdlib.h>

/* Return `argv`, or the same arguments in UTF-8; they live as long as the program. */
static char **utf8_arguments(int argc, char **argv)
{
    int count = 0, i;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &count);
    char **texts = (char **)calloc((size_t)argc + 1, sizeof *texts);
    if (wide == NULL || texts == NULL || count != argc)
        return argv;
    for (i = 0; i < argc; i++) {
        int size = WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, NULL, 0, NULL, NULL);
        texts[i] = (char *)malloc((size_t)size + 1);
        if (texts[i] == NULL || WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, texts[i], size, NULL, NULL) != size)
            return argv;
    }
    return texts;
}

#else

static char **utf8_arguments(int argc, char **argv)
{
    (void)argc;
    return argv;
}

#endif
#endif
