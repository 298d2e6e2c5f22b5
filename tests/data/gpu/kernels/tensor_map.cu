// y = 2 x through a TMA copy of an 8 x 32 tile for each block.
struct __align__(64) Map { unsigned char bytes[128]; };
extern "C" __global__ void k(const __grid_constant__ Map map, float* __restrict__ y, int n) {
  __shared__ __align__(128) float tile[8 * 32];
  __shared__ __align__(8) unsigned long long barrier;
  const unsigned b = (unsigned)__cvta_generic_to_shared(&barrier);
  const unsigned t = (unsigned)__cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(1024));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(t),
        "l"(&map), "r"(0), "r"(blockIdx.x * 8), "r"(b) : "memory");
  }
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(b) : "memory");
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = 2 * tile[threadIdx.x];
}
