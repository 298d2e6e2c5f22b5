// Honest kernels that pass messages, wait, diverge or call in unusual ways.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

extern "C" __global__ void lock(int* l, int* c, int* y){
    __shared__ int dummy;
    for(int k=0;k<3;k++){
        if(threadIdx.x==0){
            while(atomicCAS(l,0,1)!=0);
            __threadfence();
            c[0]+=1;
            __threadfence();
            atomicExch(l,0);
        }
        __syncthreads();
    }
    y[blockIdx.x*blockDim.x+threadIdx.x]=1;
}

extern "C" __global__ void lockall(int* l, int* c){
    bool done=false;
    while(!done){
        if(atomicCAS(l,0,1)==0){
            __threadfence();
            c[0]+=1;
            __threadfence();
            atomicExch(l,0);
            done=true;
        }
    }
}

__device__ void gridbar(unsigned* bar, unsigned n){
    __syncthreads();
    if(threadIdx.x==0){
        __threadfence();
        unsigned old=atomicAdd(bar,1);
        unsigned target=(old/n+1)*n;
        while(*(volatile unsigned*)bar < target);
        __threadfence();
    }
    __syncthreads();
}

extern "C" __global__ void grid(int* a, int* b, unsigned* bar, int n){
    int i=blockIdx.x*blockDim.x+threadIdx.x;
    for(int it=0;it<4;it++){
        b[i]=a[(i+1)%n]+1;
        gridbar(bar,gridDim.x);
        a[i]=b[(i+blockDim.x)%n];
        gridbar(bar,gridDim.x);
    }
}

extern "C" __global__ void lookback(const int* x, int* y, volatile int* flag, volatile int* agg, volatile int* pre, int n){
    __shared__ int s[128];
    __shared__ int base;
    int t=threadIdx.x, b=blockIdx.x, i=b*128+t;
    s[t]=i<n?x[i]:0;
    __syncthreads();
    for(int k=1;k<128;k<<=1){
        int v=t>=k?s[t-k]:0;
        __syncthreads();
        s[t]+=v;
        __syncthreads();
    }
    if(t==0){
        int tot=s[127];
        if(b==0){
            pre[0]=tot;
            __threadfence();
            flag[0]=2;
            base=0;
        }
        else {
            agg[b]=tot;
            __threadfence();
            flag[b]=1;
            int run=0;
            int j=b-1;
            while(true){
                int f;
                do {
                    f=flag[j];
                }
                while(f==0);
                __threadfence();
                if(f==2){
                    run+=pre[j];
                    break;
                }
                run+=agg[j];
                j--;
            }
            base=run;
            pre[b]=run+tot;
            __threadfence();
            flag[b]=2;
        }
    }
    __syncthreads();
    if(i<n) y[i]=base+s[t];
}

extern "C" __global__ void lastb(const float* x, float* part, float* out, unsigned* tick, int n){
    __shared__ float s[256];
    __shared__ bool last;
    int t=threadIdx.x;
    float v=0;
    for(int i=blockIdx.x*256+t;i<n;i+=gridDim.x*256) v+=x[i];
    s[t]=v;
    __syncthreads();
    for(int k=128;k;k>>=1){
        if(t<k) s[t]+=s[t+k];
        __syncthreads();
    }
    if(t==0){
        part[blockIdx.x]=s[0];
        __threadfence();
        last=atomicInc(tick,gridDim.x-1)==gridDim.x-1;
    }
    __syncthreads();
    if(last){
        v=0;
        for(int i=t;i<gridDim.x;i+=256) v+=part[i];
        s[t]=v;
        __syncthreads();
        for(int k=128;k;k>>=1){
            if(t<k) s[t]+=s[t+k];
            __syncthreads();
        }
        if(t==0) out[0]=s[0];
    }
}

extern "C" __global__ void wsync(const int* x, int* y){
    __shared__ int s[256];
    int t=threadIdx.x;
    s[t]=x[blockIdx.x*256+t];
    __syncthreads();
    if(t<128) s[t]+=s[t+128];
    __syncthreads();
    if(t<64) s[t]+=s[t+64];
    __syncthreads();
    if(t<32){
        int v=s[t]+s[t+32];
        __syncwarp();
        s[t]=v;
        __syncwarp();
        for(int k=16;k;k>>=1){
            if(t<k) v=s[t]+s[t+k];
            __syncwarp();
            if(t<k) s[t]=v;
            __syncwarp();
        }
    }
    if(t==0) y[blockIdx.x]=s[0];
}

extern "C" __global__ void wvol(const int* x, int* y){
    __shared__ volatile int s[64];
    int t=threadIdx.x;
    s[t]=x[blockIdx.x*64+t];
    __syncthreads();
    if(t<32){
        s[t]+=s[t+32];
        __syncwarp();
        if(t<16) s[t]+=s[t+16];
        __syncwarp();
        if(t<8) s[t]+=s[t+8];
        __syncwarp();
        if(t<4) s[t]+=s[t+4];
        __syncwarp();
        if(t<2) s[t]+=s[t+2];
        __syncwarp();
        if(t<1) s[t]+=s[t+1];
    }
    if(t==0) y[blockIdx.x]=s[0];
}

extern "C" __global__ void halfsync(const int* x, int* y){
    __shared__ int s[64];
    int t=threadIdx.x;
    unsigned m=(t&16)?0xffff0000u:0x0000ffffu;
    s[t]=x[t];
    __syncwarp(m);
    int v=s[t^5];
    __syncwarp(m);
    s[t]=v+1;
    __syncwarp(m);
    y[t]=s[t^1];
}

extern "C" __global__ void divsync(const int* x, int* y){
    __shared__ int s[64];
    int t=threadIdx.x;
    s[t]=x[t];
    if(t&1) {
        __syncwarp();
        s[t]+=1;
    }
    else {
        __syncwarp();
        s[t]+=2;
    }
    __syncwarp();
    y[t]=s[t^1];
}

namespace cg=cooperative_groups;

extern "C" __global__ void cgt(const int* x, int* y){
    auto b=cg::this_thread_block();
    auto tl=cg::tiled_partition<16>(b);
    int v=x[b.thread_rank()];
    v=cg::reduce(tl,v,cg::plus<int>());
    if(tl.thread_rank()==0) y[b.thread_rank()/16]=v;
}

extern "C" __global__ void aggr(int* c, int* y, int n){
    int i=blockIdx.x*blockDim.x+threadIdx.x;
    if(i<n && (i%3)==0){
        auto g=cg::coalesced_threads();
        int w=0;
        if(g.thread_rank()==0) w=atomicAdd(c,g.size());
        w=g.shfl(w,0)+g.thread_rank();
        y[w]=i;
    }
}

extern "C" __global__ void bytes(const unsigned char* x, unsigned char* y, int n){
    __shared__ unsigned char s[256];
    int t=threadIdx.x,i=blockIdx.x*256+t;
    s[t]=i<n?x[i]:0;
    __syncthreads();
    if(i<n) y[i]=s[255-t];
}

struct P{
    char a;
    double b;
    short c;
};

extern "C" __global__ void structs(const P* x, P* y, int n){
    int i=blockIdx.x*blockDim.x+threadIdx.x;
    if(i<n){
        P p=x[i];
        p.b*=2;
        y[i]=p;
    }
}

struct Q{
    char a;
    int b;
    char c;
};

extern "C" __global__ void locst(const int* x, int* y, int k){
    Q q[4];
    for(int i=0;i<4;i++){
        q[i].a=i;
        q[i].b=x[threadIdx.x]+i;
        q[i].c=2;
    }
    Q z=q[(threadIdx.x+k)&3];
    Q w[4];
    for(int i=0;i<4;i++) w[i]=q[i];
    w[k&3]=z;
    y[threadIdx.x]=w[(threadIdx.x)&3].b + w[k&3].a;
}

__device__ __noinline__ int fib(int n){
    return n<2?n:fib(n-1)+fib(n-2);
}

typedef int (*F)(int);

__device__ __noinline__ int fa(int x){
    return x+1;
}

__device__ __noinline__ int fb(int x){
    return x*2;
}

__device__ __noinline__ int fc(int x){
    return x-3;
}

__device__ F table[3]={fa,fb,fc};

extern "C" __global__ void rec(int* y){
    y[threadIdx.x]=fib(threadIdx.x%10);
}

extern "C" __global__ void fptr(int* y){
    int t=threadIdx.x;
    y[t]=table[t%3](t);
}
extern "C" int printf(const char*,...);

extern "C" __global__ void pr(int* y){
    int t=threadIdx.x;
    if(t<3) printf("t=%d f=%.2f s=%s l=%lld c=%c %5u%%\n",t,t*1.5,"abc",(long long)t<<40,'x',t);
    y[t]=t;
}

extern "C" __global__ void wops(const int* x, unsigned* y){
    int t=threadIdx.x;
    unsigned v=x[t]&7;
    y[t*6]=__match_any_sync(~0u,v);
    int pred;
    y[t*6+1]=__match_all_sync(~0u,v,&pred)+pred;
    y[t*6+2]=__reduce_add_sync(~0u,v);
    y[t*6+3]=__reduce_max_sync(~0u,v);
    if(t&1){
        unsigned m=__activemask();
        y[t*6+4]=__ballot_sync(m,v>3);
        y[t*6+5]=__shfl_sync(m,v,1);
    }
    else {
        y[t*6+4]=__popc(__activemask());
        y[t*6+5]=__any_sync(0x55555555,v==0);
    }
}

extern "C" __global__ void atom(const int* x, int* o, float* f, double* d, unsigned long long* q, __half2* h, __nv_bfloat16* b, unsigned short* us){
    int t=blockIdx.x*blockDim.x+threadIdx.x;
    int v=x[t];
    atomicAdd(o,v);
    atomicMin(o+1,v);
    atomicMax(o+2,v);
    atomicAnd(o+3,v);
    atomicOr(o+4,v);
    atomicXor(o+5,v);
    atomicInc((unsigned*)o+6,10u);
    atomicDec((unsigned*)o+7,10u);
    atomicExch(o+8,v);
    atomicSub(o+9,v);
    atomicAdd(f+(t&3),(float)(v&7));
    atomicAdd(d,(double)v);
    atomicAdd(q,(unsigned long long)v);
    atomicMax(q+1,(unsigned long long)v);
    atomicAdd(h,__floats2half2_rn(1,2));
    atomicAdd(b,__float2bfloat16(1.f));
    unsigned short as;
    do {
        as=*(volatile unsigned short*)us;
    }
    while(atomicCAS(us,as,(unsigned short)(as+1))!=as);
}

extern "C" __global__ void pipe(const float4* x, float* y, int n){
    __shared__ float4 s[2][64];
    int t=threadIdx.x;
    const float4* p=x+blockIdx.x*64*n;
    __pipeline_memcpy_async(&s[0][t],p+t,16);
    __pipeline_commit();
    float a=0;
    for(int k=0;k<n;k++){
        if(k+1<n) __pipeline_memcpy_async(&s[(k+1)&1][t],p+(k+1)*64+t,16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v=s[k&1][63-t];
        a+=v.x+v.y+v.z+v.w;
        __syncthreads();
    }
    y[blockIdx.x*64+t]=a;
}

extern "C" __global__ void odd(const int* x, int* y, int n){
    __shared__ int s[105];
    int t=threadIdx.x+5*(threadIdx.y+7*threadIdx.z);
    int b=blockIdx.x+2*(blockIdx.y+2*blockIdx.z);
    int i=b*105+t;
    s[t]=i<n?x[i]:0;
    __syncthreads();
    int v=0;
    for(int k=0;k<=t;k++){
        if(s[k]==13) continue;
        if(s[k]>90) break;
        v+=s[k];
    }
    if(i<n) y[i]=v;
}

extern "C" __global__ void inplace(float* x, int n){
    int i=blockIdx.x*blockDim.x+threadIdx.x;
    for(;i<n;i+=gridDim.x*blockDim.x) x[i]=x[i]*x[i]+1;
}

extern "C" __global__ void rot(int* x, int n){
    extern __shared__ int s[];
    int* a=s;
    int* b=s+blockDim.x;
    int t=threadIdx.x;
    a[t]=x[blockIdx.x*blockDim.x+t];
    __syncthreads();
    b[t]=a[(t+1)%blockDim.x];
    __syncthreads();
    x[blockIdx.x*blockDim.x+t]=a[t]*100+b[t];
}

extern "C" __global__ void clk(long long* y){
    long long a=clock64();
    __nanosleep(100);
    long long b=clock64();
    y[threadIdx.x]=b>a;
}
