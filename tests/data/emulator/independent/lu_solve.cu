// Every thread solves its own 5 x 5 system by elimination with pivoting in local arrays.
#define N 5
extern "C" __global__ void lu_solve(const double* matrices, const double* rights, double* x,
                                    double* determinant, int count)
{
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= count) return;
    double a[N][N], b[N];
    int order[N];
    for (int r = 0; r < N; ++r) {
        order[r] = r;
        b[r] = rights[id * N + r];
        for (int c = 0; c < N; ++c) a[r][c] = matrices[(id * N + r) * N + c];
    }
    double det = 1.0;
    for (int k = 0; k < N; ++k) {
        int best = k;
        for (int r = k + 1; r < N; ++r)
            if (fabs(a[order[r]][k]) > fabs(a[order[best]][k])) best = r;
        if (best != k) {
            int row = order[k]; order[k] = order[best]; order[best] = row;
            det = -det;
        }
        double pivot = a[order[k]][k];
        det *= pivot;
        for (int r = k + 1; r < N; ++r) {
            double factor = a[order[r]][k] / pivot;
            for (int c = k + 1; c < N; ++c) a[order[r]][c] -= factor * a[order[k]][c];
            b[order[r]] -= factor * b[order[k]];
        }
    }
    double solved[N];
    for (int k = N - 1; k >= 0; --k) {
        double sum = b[order[k]];
        for (int c = k + 1; c < N; ++c) sum -= a[order[k]][c] * solved[c];
        solved[k] = sum / a[order[k]][k];
    }
    for (int k = 0; k < N; ++k) x[id * N + k] = solved[k];
    determinant[id] = det;
}
