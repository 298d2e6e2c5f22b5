// Functions of the double library: range reduction with local tables, tables in constant memory.
extern "C" __global__ void double_functions(const double* x, const double* y, double* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = pow(fabs(x[i]), y[i]);
    out[n + i] = sin(x[i]);
    out[2 * n + i] = log1p(fabs(y[i]));
    out[3 * n + i] = erf(y[i]);
    out[4 * n + i] = cbrt(x[i]);
    out[5 * n + i] = tgamma(1.0 + fabs(y[i]));
    out[6 * n + i] = fmod(x[i], 0.375);
    out[7 * n + i] = hypot(x[i], y[i]);
}
