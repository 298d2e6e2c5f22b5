// Escape times; lanes leave the loop at different trips. Roundings are spelled out.
extern "C" __global__ void mandelbrot(int* out, int width, int height, int limit)
{
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height) return;
    float cr = __fadd_rn(__fmul_rn((float)px, 0.046875f), -2.0f);
    float ci = __fadd_rn(__fmul_rn((float)py, 0.0625f), -1.125f);
    float zr = 0.0f, zi = 0.0f;
    int n = 0;
    while (n < limit) {
        float rr = __fmul_rn(zr, zr), ii = __fmul_rn(zi, zi);
        if (__fadd_rn(rr, ii) > 4.0f) break;
        zi = __fadd_rn(__fmul_rn(2.0f, __fmul_rn(zr, zi)), ci);
        zr = __fadd_rn(__fsub_rn(rr, ii), cr);
        ++n;
    }
    out[py * width + px] = n;
}
