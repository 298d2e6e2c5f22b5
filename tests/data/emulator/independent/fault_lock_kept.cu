// infinite_loop: a block that finds the account short returns without giving the lock back.
extern "C" __global__ void fault_lock_kept(int* lock, int* account, const int* amounts)
{
    if (threadIdx.x) return;
    while (atomicCAS(lock, 0, 1) != 0) __nanosleep(40);
    __threadfence();
    int left = *(volatile int*)account - amounts[blockIdx.x];
    if (left < 0) return;
    *(volatile int*)account = left;
    __threadfence();
    atomicExch(lock, 0);
}
