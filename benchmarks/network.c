/* The small network of the tests, and one big tensor beside its own: COUNT floats, which something has to read. */
#include "../tests/data/c/network.c"

WEIGHT(payload, AT_PAYLOAD, COUNT)

float payload_sum(void)
{
    float sum = 0;
    int i;
    for (i = 0; i < COUNT; i++)
        sum += payload()[i];
    return sum;
}
