/* SPDX-License-Identifier: 0BSD
 * As dump.c, in C++ and through typed views.
 *
 *     c++ -std=c++11 -I "$(emitter --include-dir)" dump.cc -o dump -ldl
 *     ./dump ./libresnet18.so ... */

#define EMITTER_LIBRARY
#include "emitter.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>

namespace {

template <class T> std::size_t bytes_of(const emitter::view<T, false> &view) { return view.size() * sizeof(T); }
template <class T> std::size_t bytes_of(const emitter::view<T, true> &view)
{
    return static_cast<std::size_t>((view.size() * emitter::element<T>::bits + 7) / 8);
}

/* Print the tensor as elements of the first type that it has. */
template <class T> bool print_as(const emitter_reader &reader, const emitter_tensor &tensor)
{
    const auto view = emitter::tensor<T>(reader, tensor.name);
    if (!view)
        return false;
    std::printf("%s [", emitter_dtype_name(emitter::element<T>::code, emitter::element<T>::bits));
    for (int i = 0; i < view.ndim(); i++)
        std::printf(i ? ",%" PRId64 : "%" PRId64, view.shape(i));
    const void *data = view.raw().data;
    std::printf("] %s 0x%08" PRIx32 " %s\n", reinterpret_cast<uintptr_t>(data) % tensor.alignment ? "MISALIGNED" : "aligned",
                emitter_crc32c(data, bytes_of<T>(view), 0), tensor.name);
    return true;
}

template <class T> bool print(const emitter_reader &reader, const emitter_tensor &tensor) { return print_as<T>(reader, tensor); }
template <class T, class Next, class... Others> bool print(const emitter_reader &reader, const emitter_tensor &tensor)
{
    return print_as<T>(reader, tensor) || print<Next, Others...>(reader, tensor);
}

bool print_pack(emitter_reader &reader)
{
    emitter_tensor tensor;
    for (std::uint32_t i = 0; emitter_at(&reader, i, &tensor) == EMITTER_OK; i++)
        if (!print<float, double, emitter::half, emitter::bfloat16, std::int8_t, std::int16_t, std::int32_t, std::int64_t,
                   std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, emitter::boolean, emitter::complex64,
                   emitter::int4, emitter::uint4>(reader, tensor)) {
            std::fprintf(stderr, "error: %s: this program has no type for its elements\n", tensor.name);
            return false;
        }
    return true;
}

} // namespace

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char message[512];
        emitter_library library;
        if (emitter_library_open(&library, argv[i], message, sizeof message) != EMITTER_OK) {
            std::fprintf(stderr, "error: %s\n", message);
            return 1;
        }
        const bool printed = print_pack(library.reader);
        emitter_library_close(&library);
        if (!printed)
            return 1;
    }
    return 0;
}
