// SPDX-License-Identifier: Apache-2.0
// Tensor parallel: a rank has columns of a, and rows of b, x and y = x a b. Each chunk of rows of x is a coroutine.
//   tutti-run -n 4 only_tensor_parallel 8       8 chunks; with 1 nothing overlaps
#include <tutti/tutti.hpp>

#include <Eigen/Dense>
#include <chrono>
#include <cstdio>
#include <cstdlib>

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
constexpr int rows = 256, width = 256, hidden = 512, steps = 10;
std::span<float> all(matrix& m) { return {m.data(), static_cast<std::size_t>(m.size())}; }

struct chunk {
  tutti::communicator world;  // of its own: chunks go on in any order
  matrix mine, error = mine;  // this rank's rows of x, and of the gradient of y
  matrix x = matrix(mine.rows() * world.size(), width), y = x, h, da, db;
};

tutti::task<> pass(chunk* c, const matrix* a, const matrix* b, double* loss) {
  co_await c->world.all_gather(all(c->mine), all(c->x));
  const auto forward = [=] { c->y.noalias() = (c->h = c->x * *a) * *b; };
  co_await tutti::compute(forward);
  co_await c->world.reduce_scatter(all(c->y), all(c->error), tutti::sum);
  *loss += (c->error.array() -= 0.5F).square().sum() / 2;  // whose gradient is y - 0.5
  co_await c->world.all_gather(all(c->error), all(c->y));
  const auto backward = [=] {
    c->db = c->h.transpose() * c->y;
    c->h = c->y * b->transpose();
    c->da = c->x.transpose() * c->h;
    c->x = c->h * a->transpose();
  };
  co_await tutti::compute(backward);
  co_await c->world.reduce_scatter(all(c->x), all(c->error), tutti::sum);  // the gradient of x
}

tutti::task<> train(tutti::communicator world, int m) {
  const int n = world.size(), me = world.rank(), h = hidden / n, r = rows / m / n;
  matrix a = matrix::Random(width, hidden).eval().middleCols(me * h, h) / 16;  // all draw the same
  matrix b = matrix::Random(hidden, width).eval().middleRows(me * h, h) / 16;
  const matrix x = matrix::Random(rows, width);
  std::vector<chunk> chunks;
  for (int i = me; i < m * n; i += n) chunks.emplace_back(co_await world.duplicate(), x.middleRows(i * r, r));
  double loss = 0;
  const auto start = tutti::now();
  for (int step = 0; step < steps; ++step) {
    tutti::scope passes;
    for (chunk& c : chunks) passes.spawn(pass(&c, &a, &b, &loss));
    co_await passes.join();
    for (const chunk& c : chunks) a -= c.da / (4 * rows), b -= c.db / (4 * rows);
  }
  co_await world.all_reduce(loss, tutti::sum);
  const std::chrono::duration<double, std::milli> took = tutti::now() - start;
  if (me == 0) std::printf("loss %.5g; %.1f ms per step in %d chunks\n", loss, took.count() / steps, m);
}

int main(int argc, char** argv) {
  return tutti::run([=](tutti::communicator w) { return train(w, argc > 1 ? std::atoi(argv[1]) : 8); });
}
