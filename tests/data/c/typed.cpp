// SPDX-License-Identifier: 0BSD
// typed PACK: the typed views of C++, over the pack that test_cxx_loader.py makes. Says which check fails.

#include "emitter.h"

#include <cstdio>

static int failures = 0;

static void check(bool right, const char *what)
{
    if (!right) {
        std::printf("%s\n", what);
        failures++;
    }
}
#define CHECK(condition) check((condition), #condition)

template <class T> static void bits_are(const emitter_reader &reader, const char *name, unsigned first, unsigned second)
{
    auto view = emitter::tensor<T>(reader, name);
    check(view.ok() && view.size() == 2 && view[0].bits == first && view[1].bits == second, name);
}

template <class T> static void integers_are(const emitter_reader &reader, const char *name, T first, T second)
{
    auto view = emitter::tensor<T>(reader, name);
    check(view.ok() && view.size() == 2 && view[0] == first && view[1] == second, name);
}

template <class T> static void packed_are(const emitter_reader &reader, const char *name, const int (&values)[5])
{
    auto view = emitter::tensor<T>(reader, name);
    bool right = view.ok() && view.size() == 5;
    for (unsigned i = 0; i < 5 && right; i++)
        right = view.get(i) == values[i];
    check(right, name);
}

int main(int argc, char **argv)
{
    static uint64_t memory[1 << 13];
    emitter_reader reader;
    std::FILE *file = argc == 2 ? std::fopen(argv[1], "rb") : nullptr;
    if (file == nullptr)
        return 2;
    size_t size = std::fread(memory, 1, sizeof memory, file);
    std::fclose(file);
    CHECK(emitter_open(&reader, memory, size) == EMITTER_OK);

    auto weight = emitter::tensor<float>(reader, "conv1.weight");
    CHECK(weight.ok() && weight);
    CHECK(weight.ndim() == 2 && weight.shape(0) == 2 && weight.shape(1) == 3 && weight.size() == 6);
    float sum = 0;
    for (float value : weight)
        sum += value;
    CHECK(sum == 21.0f && weight[5] == 6.0f && weight.data() == weight.begin() && weight.end() - weight.begin() == 6);
    CHECK(weight.raw().nbytes == 24);

    emitter_tensor found;
    CHECK(emitter_find(&reader, "conv1.weight", &found) == EMITTER_OK);
    CHECK(emitter::tensor<float>(found).data() == weight.data());

    // Errors are values, and what they come with is empty.
    auto missing = emitter::tensor<float>(reader, "conv1.weights");
    CHECK(!missing.ok() && !missing && missing.status() == EMITTER_NOT_FOUND && missing.size() == 0 && missing.data() == nullptr);
    CHECK(missing.begin() == missing.end() && missing.ndim() == 0);
    CHECK(missing.shape(0) == 0 && missing.raw().shape == nullptr && missing.raw().name == nullptr && missing.raw().nbytes == 0);
    auto nameless = emitter::tensor<float>(reader, nullptr);
    CHECK(nameless.status() == EMITTER_ARGUMENT && nameless.data() == nullptr && nameless.shape(0) == 0);
    CHECK(nameless.raw().name == nullptr && nameless.raw().metadata_count == 0 && nameless.raw().dtype_bits == 0);
    CHECK(weight.shape(-1) == 0 && weight.shape(2) == 0);
    CHECK(emitter::tensor<double>(reader, "conv1.weight").shape(0) == 0);
    CHECK(emitter::tensor<double>(reader, "conv1.weight").status() == EMITTER_DTYPE);
    CHECK(emitter::tensor<int32_t>(reader, "conv1.weight").status() == EMITTER_DTYPE);
    CHECK(emitter::tensor<uint32_t>(reader, "conv1.weight").status() == EMITTER_DTYPE);
    CHECK(emitter::tensor<float>(reader, "lanes").status() == EMITTER_DTYPE);
    CHECK(emitter::tensor<uint8_t>(reader, "blocks").status() == EMITTER_ENCODED);
    CHECK(emitter::tensor<float>(reader, "odd").status() == EMITTER_MISALIGNED);
    CHECK(emitter::tensor<emitter::half>(reader, "bfloat16").status() == EMITTER_DTYPE);

    auto scalar = emitter::tensor<double>(reader, "scalar");
    CHECK(scalar.shape(0) == 0);
    CHECK(scalar.ok() && scalar.ndim() == 0 && scalar.size() == 1 && scalar[0] == 2.5);
    auto empty = emitter::tensor<float>(reader, "empty");
    CHECK(empty.ok() && empty.empty() && empty.size() == 0 && empty.begin() == empty.end() && empty.shape(1) == 0);

    integers_are<int8_t>(reader, "int8", -1, 2);
    integers_are<int16_t>(reader, "int16", -1, 2);
    integers_are<int32_t>(reader, "int32", -1, 2);
    integers_are<int64_t>(reader, "int64", -1, 2);
    integers_are<uint8_t>(reader, "uint8", 255, 2);
    integers_are<uint16_t>(reader, "uint16", 65535, 2);
    integers_are<uint32_t>(reader, "uint32", 4294967295u, 2);
    integers_are<uint64_t>(reader, "uint64", 18446744073709551615u, 2);

    bits_are<emitter::half>(reader, "float16", 0x3c00, 0xc000);
    bits_are<emitter::bfloat16>(reader, "bfloat16", 0x3f80, 0xc000);
    bits_are<emitter::float8_e3m4>(reader, "float8_e3m4", 0x38, 0xc0);
    bits_are<emitter::float8_e4m3>(reader, "float8_e4m3", 0x38, 0xc0);
    bits_are<emitter::float8_e4m3b11fnuz>(reader, "float8_e4m3b11fnuz", 0x38, 0xc0);
    bits_are<emitter::float8_e4m3fn>(reader, "float8_e4m3fn", 0x38, 0xc0);
    bits_are<emitter::float8_e4m3fnuz>(reader, "float8_e4m3fnuz", 0x38, 0xc0);
    bits_are<emitter::float8_e5m2>(reader, "float8_e5m2", 0x38, 0xc0);
    bits_are<emitter::float8_e5m2fnuz>(reader, "float8_e5m2fnuz", 0x38, 0xc0);
    bits_are<emitter::float8_e8m0fnu>(reader, "float8_e8m0fnu", 0x38, 0xc0);

    auto complex = emitter::tensor<emitter::complex64>(reader, "complex64");
    CHECK(complex.ok() && complex.size() == 1 && complex[0].real == 1.0f && complex[0].imag == -2.0f);
    auto booleans = emitter::tensor<emitter::boolean>(reader, "bool");
    CHECK(booleans.ok() && booleans.size() == 3 && booleans[0] && !booleans[1] && booleans[2]);

    packed_are<emitter::int4>(reader, "int4", {-8, 7, -1, 0, 3});
    packed_are<emitter::uint4>(reader, "uint4", {8, 7, 15, 0, 3});
    packed_are<emitter::float4_e2m1fn>(reader, "float4_e2m1fn", {8, 7, 15, 0, 3});
    packed_are<emitter::int2>(reader, "int2", {-2, 1, -1, 0, 1});
    packed_are<emitter::uint2>(reader, "uint2", {2, 1, 3, 0, 1});
    packed_are<emitter::uint1>(reader, "uint1", {1, 0, 1, 1, 0});
    packed_are<emitter::float6_e2m3fn>(reader, "float6_e2m3fn", {63, 1, 32, 0, 21});
    packed_are<emitter::float6_e3m2fn>(reader, "float6_e3m2fn", {63, 1, 32, 0, 21});
    CHECK(emitter::tensor<emitter::int4>(reader, "uint4").status() == EMITTER_DTYPE);
    return failures;
}
