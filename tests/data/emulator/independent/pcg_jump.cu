// PCG32 streams: every thread jumps ahead in O(log n) and draws a few bounded numbers.
extern "C" __global__ void pcg_jump(unsigned* out, unsigned long long seed, int draws, unsigned bound)
{
    const unsigned long long multiplier = 6364136223846793005ull, increment = 1442695040888963407ull;
    unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long state = seed, m = multiplier, c = increment, am = 1, ac = 0;
    for (unsigned long long delta = (unsigned long long)id * draws; delta; delta >>= 1) {
        if (delta & 1) {
            am *= m;
            ac = ac * m + c;
        }
        c = (m + 1) * c;
        m *= m;
    }
    state = am * state + ac;
    for (int d = 0; d < draws; ++d) {
        unsigned mixed = (unsigned)(((state >> 18) ^ state) >> 27), turn = (unsigned)(state >> 59);
        unsigned word = __funnelshift_r(mixed, mixed, turn);
        state = state * multiplier + increment;
        out[id * draws + d] = __umulhi(word, bound) + word % bound;
    }
}
