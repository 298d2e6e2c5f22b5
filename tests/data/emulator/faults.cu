// Small kernels, most of them wrong on purpose: tests/test_emulator_faults.py says how.

extern "C" __global__ void race_neighbour_in_next_block(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    y[i]=x[i]; __syncthreads(); if(i>0) y[i]=y[i-1]+1;
}

extern "C" __global__ void race_between_blocks(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if(t==0) y[blockIdx.x]=x[i];
    if(t==1) y[gridDim.x+blockIdx.x]=y[(blockIdx.x+1)%gridDim.x];
}

extern "C" __global__ void race_shift_in_place(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    int* w=(int*)x; if(i+1<n) w[i]=w[i+1];
}

extern "C" __global__ void race_bytes_of_other_warp(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ unsigned char s[64]; s[t]=x[i]; y[i]=s[(t+32)&63];
}

extern "C" __global__ void race_flag_without_release(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    volatile int* f=(volatile int*)y;
    if(blockIdx.x==0){ if(t==0){ y[1]=5;
    f[0]=1; } } else if(t==0){ while(f[0]==0);
    __threadfence();
    y[2]=y[1]; }
}

extern "C" __global__ void race_flag_without_acquire(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    volatile int* f=(volatile int*)y;
    if(blockIdx.x==0){ if(t==0){ y[1]=5;
    __threadfence();
    f[0]=1; } } else if(t==0){ while(f[0]==0);
    y[2]=y[1]; }
}

extern "C" __global__ void flag_with_fences(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    volatile int* f=(volatile int*)y;
    if(blockIdx.x==0){ if(t==0){ y[1]=5;
    __threadfence();
    f[0]=1; } } else if(t==0){ while(f[0]==0);
    __threadfence();
    y[2]=y[1]; }
}

extern "C" __global__ void race_flag_with_block_fence(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    volatile int* f=(volatile int*)y;
    if(blockIdx.x==0){ if(t==0){ y[1]=5;
    __threadfence_block();
    f[0]=1; } } else if(t==0){ while(f[0]==0);
    __threadfence();
    y[2]=y[1]; }
}

extern "C" __global__ void race_plain_flag(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if(blockIdx.x==0){ if(t==0){ y[1]=5;
    __threadfence();
    y[0]=1; } } else if(t==0){ if(((volatile int*)y)[0]) y[2]=3; }
}

extern "C" __global__ void race_atomic_and_plain_read(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int c;
    if(t==0) c=0;
    __syncthreads();
    if(x[i]>10) atomicAdd(&c,1);
    if(t==40) y[blockIdx.x]=c;
}

extern "C" __global__ void race_plain_initialisation(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int c;
    if(t==0) c=0;
    atomicAdd(&c,1);
    __syncthreads();
    if(t==0) y[blockIdx.x]=c;
}

extern "C" __global__ void race_last_block_without_fence(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ bool last;
    if(t==0){ y[blockIdx.x]=x[i];
    last=atomicAdd(y+100,1)==gridDim.x-1; } __syncthreads();
    if(last&&t==0){ int s=0;
    for(int k=0;
    k<gridDim.x;
    k++) s+=y[k];
    y[200]=s; }
}

extern "C" __global__ void race_broadcast_in_warp(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64]; if((t&31)==0) s[t>>5]=x[i]; y[i]=s[t>>5];
}

extern "C" __global__ void race_shuffle_orders_nothing(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64];
    s[t]=x[i];
    int v=__shfl_xor_sync(~0u,x[i],1);
    y[i]=s[t^1]+v;
}

extern "C" __global__ void race_half_warp_barriers(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64];
    s[t]=x[i];
    __syncwarp(t&16?0xffff0000u:0xffffu);
    y[i]=s[t^16];
}

extern "C" __global__ void double_buffer(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[2][64];
    int a=0;
    for(int k=0;
    k<4;
    k++){ s[k&1][t]=x[i]+k;
    __syncthreads();
    a+=s[k&1][63-t]; } y[i]=a;
}

extern "C" __global__ void race_single_buffer(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[1][64];
    int a=0;
    for(int k=0;
    k<4;
    k++){ s[0][t]=x[i]+k;
    __syncthreads();
    a+=s[0][63-t]; } y[i]=a;
}

extern "C" __global__ void race_two_writers(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if(t<2) y[blockIdx.x]=t;
}

extern "C" __global__ void two_writers_of_one_value(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if(t<2) y[blockIdx.x]=7;
}

extern "C" __global__ void all_write_one_value(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    y[0]=7;
}

extern "C" __global__ void race_blocks_write_one_word(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    y[0]=blockIdx.x;
}

extern "C" __global__ void race_block_scope_between_blocks(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    atomicAdd_block(y,1);
}

extern "C" __global__ void block_scope_within_block(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    atomicAdd_block(y+blockIdx.x,1);
}

extern "C" __global__ void exited_warp_counts_as_arrived(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    for(int k=0;k<(t>>5)+1;k++) __syncthreads(); y[i]=1;
}

extern "C" __global__ void barriers_of_other_loops_pair_up(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    for(int k=0;
    k<(t>>5)+1;
    k++) { __syncthreads(); } y[i]=1;
    __syncthreads();
    y[i]+=1;
}

extern "C" __global__ void barrier_of_odd_lanes(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if(t&1) __syncthreads(); y[i]=1;
}

extern "C" __global__ void barrier_waits_for_too_many(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    asm volatile("bar.sync 1, 96;"); y[i]=1;
}

extern "C" __global__ void barrier_never_complete(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if(t<32) asm volatile("bar.sync 1, 64;"); y[i]=1;
}

extern "C" __global__ void warp_barrier_and_spin(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if(t&1) __syncwarp(); else while(((volatile int*)x)[0]>=0); y[i]=1;
}

extern "C" __global__ void loop_without_end(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    while(1);
}

extern "C" __global__ void blocks_wait_in_a_ring(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    volatile int* f=(volatile int*)y;
    if(t==0){ while(f[(blockIdx.x+1)%gridDim.x]==0);
    f[blockIdx.x]=1; }
}

extern "C" __global__ void bounds_shared_row(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int a[8][8];
    __shared__ int b[64];
    b[t]=0;
    a[t>>3][(t&7)+(t==63)]=1;
    __syncthreads();
    y[i]=a[0][0]+b[t];
}

extern "C" __global__ void bounds_before_start(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    y[i]=x[i-1];
}

extern "C" __global__ void bounds_between_buffers(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    y[i]=x[n+3000+i];
}

__constant__ int c[64];
extern "C" __global__ void bounds_constant(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    y[i]=c[t+1];
}

extern "C" __global__ void bounds_dynamic_shared(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    extern __shared__ int s[]; s[t]=1; __syncthreads(); y[i]=s[t+1];
}

extern "C" __global__ void bounds_no_dynamic_shared(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    extern __shared__ int s[]; s[t]=1; __syncthreads(); y[i]=s[t];
}

extern "C" __global__ void bounds_vector_store(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    ((int4*)y)[i]=make_int4(1,2,3,4);
}

extern "C" __global__ void bounds_atomic(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    atomicAdd(y+n,1);
}

extern "C" __global__ void misaligned_pair(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    int2 v=((int2*)(x+1))[i>>1]; y[i]=v.x+v.y;
}

extern "C" __global__ void misaligned_double(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    ((double*)(y+1))[0]=1;
}

extern "C" __global__ void misaligned_shared_half(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64]; s[t]=x[i]; __syncthreads(); y[i]=*(short*)((char*)s+t*3);
}

extern "C" __global__ void undefined_shared(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64]; if(t<60) s[t]=x[i]; __syncthreads(); y[i]=s[t];
}

extern "C" __global__ void undefined_local(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    int a[8]; for(int k=0;k<7;k++) a[k]=x[i]; y[i]=a[x[i]&7];
}

extern "C" __global__ void undefined_output(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    y[i]+=x[i];
}

extern "C" __global__ void undefined_branch(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64];
    if(t<60) s[t]=x[i];
    __syncthreads();
    if(s[t]>3) y[i]=1;
    else y[i]=2;
}

extern "C" __global__ void junk_never_used(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64];
    if(t<60) s[t]=x[i];
    __syncthreads();
    int v=s[t]*3;
    if(t<60) y[i]=v;
}

extern "C" __global__ void junk_not_selected(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64];
    if(t<60) s[t]=x[i];
    __syncthreads();
    int v=s[t]*3;
    y[i]=t<60?v:0;
}

extern "C" __global__ void undefined_address(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64]; if(t<60) s[t]=t; __syncthreads(); y[i]=x[s[t]];
}

extern "C" __global__ void undefined_lane(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if(t>=20) return; int v=__shfl_down_sync(0xfffff,x[i],1); y[i]=v;
}

extern "C" __global__ void lane_not_selected(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if(t>=20) return; int v=__shfl_down_sync(0xfffff,x[i],1); y[i]=t<19?v:0;
}

extern "C" __global__ void race_copy_not_waited(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64];
    unsigned d=(unsigned)__cvta_generic_to_shared(s+t);
    asm volatile("cp.async.ca.shared.global [%0],[%1],4;"::"r"(d),"l"(x+i):"memory");
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;":::"memory");
    y[i]=s[t];
}

extern "C" __global__ void race_copy_of_other_thread(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64];
    unsigned d=(unsigned)__cvta_generic_to_shared(s+t);
    asm volatile("cp.async.ca.shared.global [%0],[%1],4;"::"r"(d),"l"(x+i):"memory");
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;":::"memory");
    y[i]=s[t^1];
}

extern "C" __global__ void trap_executed(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if(x[i]>=0) __trap(); y[i]=1;
}

extern "C" __global__ void plain_copy(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    y[i]=x[i];
}

extern "C" __global__ void global_words_behind_barrier(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    y[i]=x[i];
    __syncthreads();
    int v=y[blockIdx.x*blockDim.x+(t+1)%blockDim.x];
    __syncthreads();
    y[i]=v;
}

extern "C" __global__ void race_write_after_read(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    __shared__ int s[64];
    s[t]=x[i];
    __syncthreads();
    int v=s[63-t];
    s[t]=v;
    __syncthreads();
    y[i]=s[t];
}

extern "C" __global__ void atomics_on_few_words(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    atomicAdd(y+(x[i]&3),1);
}

extern "C" __global__ void race_total_read_too_early(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    atomicAdd(y,1); __syncthreads(); if(t==0) y[1+blockIdx.x]=y[0];
}

extern "C" __global__ void call_of_no_function(const int* x, int* y, int n)
{
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    int (*f)(int)=(int(*)(int))(size_t)(0x1234+x[0]); y[i]=f(3);
}
