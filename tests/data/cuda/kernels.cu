// Two kernels and two variables: y = a * scale * x + y, and a constant.
extern "C" {
__constant__ float scale = 2.0f;
__device__ int counter;

__global__ void axpy(float a, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = a * scale * x[i] + y[i];
        atomicAdd(&counter, 1);
    }
}

__global__ void fill(float value, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = value;
}
}
