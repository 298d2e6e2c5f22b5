// Resize of an interleaved 8-bit image with half-pixel centres; weights are dyadic, so exact.
extern "C" __global__ void bilinear_resize(const uchar4* from, uchar4* to, int2 source, int2 target)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= target.x || y >= target.y) return;
    float sx = fmaxf((x + 0.5f) * source.x / target.x - 0.5f, 0.0f);
    float sy = fmaxf((y + 0.5f) * source.y / target.y - 0.5f, 0.0f);
    int x0 = (int)sx, y0 = (int)sy;
    int x1 = min(x0 + 1, source.x - 1), y1 = min(y0 + 1, source.y - 1);
    float fx = sx - x0, fy = sy - y0;
    uchar4 a = from[y0 * source.x + x0], b = from[y0 * source.x + x1];
    uchar4 c = from[y1 * source.x + x0], d = from[y1 * source.x + x1];
    auto mix = [&](unsigned char p, unsigned char q, unsigned char r, unsigned char s) {
        float top = p + fx * (q - p), low = r + fx * (s - r);
        return (unsigned char)__float2int_rn(top + fy * (low - top));
    };
    to[y * target.x + x] =
        make_uchar4(mix(a.x, b.x, c.x, d.x), mix(a.y, b.y, c.y, d.y), mix(a.z, b.z, c.z, d.z), 255);
}
