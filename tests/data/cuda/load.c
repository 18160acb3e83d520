/* Loads a program of an emitted library through libcuda, twice, and finds a kernel and a variable: LIBRARY MODULE [DRIVER]. */
#define EMITTER_LIBRARY
#include "emitter.h"
#include "emitter_cuda.h"

static int failed(const emitter_cuda *cuda)
{
    (void)puts(cuda->message);
    return 3;
}

int main(int argc, char **argv)
{
    char message[500];
    emitter_library library;
    emitter_cuda cuda;
    emitter_cuda_program *first = NULL, *second = NULL;
    void *kernel = NULL;
    uint64_t address;
    size_t size;
    if (argc < 3)
        return 1;
    if (emitter_library_open(&library, argv[1], message, sizeof message) != EMITTER_OK) {
        (void)puts(message);
        return 2;
    }
    if (emitter_cuda_open(&cuda, argc > 3 ? argv[3] : NULL, 0) != EMITTER_CUDA_OK)
        return failed(&cuda);
    if (emitter_cuda_load(&cuda, &library.reader, argv[2], &first) != EMITTER_CUDA_OK
        || emitter_cuda_load(&cuda, &library.reader, argv[2], &second) != EMITTER_CUDA_OK || first != second
        || emitter_cuda_kernel(first, "axpy", &kernel) != EMITTER_CUDA_OK || kernel == NULL
        || emitter_cuda_variable(first, "counter", &address, &size) != EMITTER_CUDA_OK || size != 4) {
        int result = failed(&cuda);
        emitter_cuda_close(&cuda);
        emitter_library_close(&library);
        return result;
    }
    emitter_cuda_unload(first);
    if (emitter_cuda_kernel(second, "missing", &kernel) != EMITTER_CUDA_NO_SYMBOL)
        return 4;
    emitter_cuda_unload(second);
    emitter_cuda_close(&cuda);
    emitter_library_close(&library);
    return 0;
}
