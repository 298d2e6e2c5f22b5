extern "C" __global__ void vadd(const float* a, const float* b, float* c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
extern "C" __global__ void block_sum(const float* x, float* out, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.f;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
#define TILE 16
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k)
{
    __shared__ float sa[TILE][TILE], sb[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * TILE + y, col = blockIdx.x * TILE + x;
    float sum = 0.f;
    for (int p = 0; p < k; p += TILE) {
        sa[y][x] = row < m && p + x < k ? a[row * k + p + x] : 0.f;
        sb[y][x] = p + y < k && col < n ? b[(p + y) * n + col] : 0.f;
        __syncthreads();
        for (int q = 0; q < TILE; ++q) sum += sa[y][q] * sb[q][x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
extern "C" __global__ void softmax(const float* x, float* y, int cols)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    const float* row = x + (long long)blockIdx.x * cols;
    float best = -1e30f;
    for (int i = t; i < cols; i += blockDim.x) best = fmaxf(best, row[i]);
    s[t] = best;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k >>= 1) {
        if (t < k) s[t] = fmaxf(s[t], s[t + k]);
        __syncthreads();
    }
    best = s[0];
    __syncthreads();
    float sum = 0.f;
    for (int i = t; i < cols; i += blockDim.x) sum += __expf(row[i] - best);
    s[t] = sum;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    sum = s[0];
    for (int i = t; i < cols; i += blockDim.x)
        y[(long long)blockIdx.x * cols + i] = __expf(row[i] - best) / sum;
}
extern "C" __global__ void broken_sum(const float* x, float* out, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.f;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1)
        if (t < k) s[t] += s[t + k];
    if (t == 0) out[blockIdx.x] = s[0];
}
