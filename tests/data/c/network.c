/* A small network: two convolutions, ReLU, max pooling, a dense layer, softmax. Tests compile it to LLVM IR.
 *
 * Weights are external symbols, or with WAY_B at offsets in the pack, which the descriptor leads to.
 */
#include <stddef.h>

#ifdef WAY_B
#include "net_descriptor.h"
#define WEIGHT(name, offset, count) static const float *name(void) { return (const float *)((const char *)net_base() + (offset)); }
#else
#define WEIGHT(name, offset, count) extern const float net_t_##name[count]; static const float *name(void) { return net_t_##name; }
#endif

#ifndef WAY_B
#define AT_CONV1_WEIGHT 0
#define AT_CONV1_BIAS 0
#define AT_CONV2_WEIGHT 0
#define AT_CONV2_BIAS 0
#define AT_DENSE_WEIGHT 0
#define AT_DENSE_BIAS 0
#endif

enum { SIDE = 12, MAPS1 = 4, MAPS2 = 6, SIDE1 = SIDE - 2, SIDE2 = SIDE1 - 2, POOLED = SIDE2 / 2, CLASSES = 5 };

WEIGHT(conv1_weight, AT_CONV1_WEIGHT, MAPS1 * 9)
WEIGHT(conv1_bias, AT_CONV1_BIAS, MAPS1)
WEIGHT(conv2_weight, AT_CONV2_WEIGHT, MAPS2 * MAPS1 * 9)
WEIGHT(conv2_bias, AT_CONV2_BIAS, MAPS2)
WEIGHT(dense_weight, AT_DENSE_WEIGHT, CLASSES * MAPS2 * POOLED * POOLED)
WEIGHT(dense_bias, AT_DENSE_BIAS, CLASSES)

float expf(float);

/* in[maps_in][side][side], 3 x 3 kernels, no padding, ReLU. */
static void convolve(float *out, const float *in, const float *weight, const float *bias, int maps, int maps_in, int side)
{
    int to = side - 2, m, c, y, x, i, j;
    for (m = 0; m < maps; m++)
        for (y = 0; y < to; y++)
            for (x = 0; x < to; x++) {
                float sum = bias[m];
                for (c = 0; c < maps_in; c++)
                    for (i = 0; i < 3; i++)
                        for (j = 0; j < 3; j++)
                            sum += in[(c * side + y + i) * side + x + j] * weight[((m * maps_in + c) * 3 + i) * 3 + j];
                out[(m * to + y) * to + x] = sum > 0 ? sum : 0;
            }
}

static float first[MAPS1 * SIDE1 * SIDE1], second[MAPS2 * SIDE2 * SIDE2], pooled[MAPS2 * POOLED * POOLED];

/* image[12][12] to 5 probabilities. */
void infer(const float *image, float *probabilities)
{
    int m, y, x, k;
    float largest, total = 0;
    convolve(first, image, conv1_weight(), conv1_bias(), MAPS1, 1, SIDE);
    convolve(second, first, conv2_weight(), conv2_bias(), MAPS2, MAPS1, SIDE1);
    for (m = 0; m < MAPS2; m++)
        for (y = 0; y < POOLED; y++)
            for (x = 0; x < POOLED; x++) {
                const float *at = second + (m * SIDE2 + 2 * y) * SIDE2 + 2 * x;
                float a = at[0] > at[1] ? at[0] : at[1], b = at[SIDE2] > at[SIDE2 + 1] ? at[SIDE2] : at[SIDE2 + 1];
                pooled[(m * POOLED + y) * POOLED + x] = a > b ? a : b;
            }
    for (k = 0; k < CLASSES; k++) {
        float sum = dense_bias()[k];
        for (m = 0; m < MAPS2 * POOLED * POOLED; m++)
            sum += pooled[m] * dense_weight()[k * MAPS2 * POOLED * POOLED + m];
        probabilities[k] = sum;
    }
    largest = probabilities[0];
    for (k = 1; k < CLASSES; k++)
        largest = probabilities[k] > largest ? probabilities[k] : largest;
    for (k = 0; k < CLASSES; k++)
        total += probabilities[k] = expf(probabilities[k] - largest);
    for (k = 0; k < CLASSES; k++)
        probabilities[k] /= total;
}
