// SPDX-License-Identifier: Apache-2.0
// sharded: each rank keeps the optimiser's state of its share of the parameters, and steps that share.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/error.hpp>
#include <tutti/extend/call.hpp>
#include <tutti/request.hpp>
#include <tutti/task.hpp>
#include <tutti/train/partition.hpp>

#include <atomic>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tutti {

// A part of a model, such as a layer. B is a view: std::span<float>, gpu::device_span<float> or at::Tensor.
template <class B>
struct sharded_piece {
  // The whole piece and its gradient, of the same size, on every rank.
  B parameters, gradient;
  // Receives this rank's share of the average gradient (ZeRO-2); share_begin() says its size. `gradient` is
  // then free after reduced(). Empty: the share replaces its place in `gradient` (ZeRO-1).
  B reduced{};
};

// What a rank steps of a piece.
template <class B>
struct shard {
  std::size_t piece;
  // Of the first element in this rank's optimiser state, which has own_elements() elements.
  std::size_t offset;
  // This rank's shares. The gradient is averaged over the ranks.
  B parameters, gradient;
};

// An optimiser whose state is divided among the ranks: stages 1 and 2 of ZeRO (Rajbhandari and others, 2020).
//
//   auto optimiser = co_await tutti::sharded<std::span<float>>::create(world, pieces);
//   std::vector<float> momentum(optimiser.own_elements());
//   for (each batch) {
//     for (i = 0; i < n; ++i) { co_await optimiser.gathered(i); forward(i); }
//     for (i = n; i-- > 0;) { backward(i); optimiser.ready(i); }
//     for (i = n; i-- > 0;) {
//       const auto own = co_await optimiser.reduced(i);
//       sgd(own.parameters, own.gradient, &momentum[own.offset]);
//     }
//     optimiser.gather();
//   }
//   co_await optimiser.gathered();
//
// Each piece is averaged by a reduce_scatter behind the backward pass, from the last piece to the first on all ranks.
// gather() starts an all_gather of each piece, from the first to the last, which overlaps the next forward pass.
// For memory of a device, Stream is gpu::stream: operations follow the work that is on it when they start, and the
// awaited functions complete when the device has done them.
//
// Belongs to the loop thread of its communicator, except ready(). Move-only.
// Cost: each step sends 2 (P - 1) / P times the bytes of the model, as an all_reduce does.
// Cancellation: destroying it in the middle of a step fails its own communicator on all ranks, and not `c`.
template <class B, class... Stream>
class sharded {
  struct part {
    sharded_piece<B> whole;
    std::vector<std::size_t> counts;  // of each rank's share; all are equal if the first and the last are
    shard<B> own;
    request reducing, gathering;
    std::atomic<bool> ready{false};
  };

  struct state {
    state(communicator c, Stream... s) : world(std::move(c)), after(std::move(s)...) {}

    void add(sharded_piece<B> piece) {
      const std::size_t size = size_of(piece.parameters), given = size_of(piece.reduced);
      const auto begin = [&](int rank) { return share_begin(size, rank, world.size()); };
      std::vector<std::size_t> counts;
      for (int r = 0; r < world.size(); ++r) counts.push_back(begin(r + 1) - begin(r));
      const std::size_t first = begin(world.rank()), mine = begin(world.rank() + 1) - first;
      if (size == 0 || size_of(piece.gradient) != size || (given != 0 && given != mine))
        throw error(errc::invalid_argument, "sharded: piece " + std::to_string(parts.size()) + " has " +
                                                std::to_string(size) + " parameters, a gradient of " +
                                                std::to_string(size_of(piece.gradient)) + " and a share of " +
                                                std::to_string(given) + ", not " + std::to_string(mine));
      shard<B> own{parts.size(), own_elements, slice(piece.parameters, first, mine),
                   given != 0 ? piece.reduced : slice(piece.gradient, first, mine)};
      parts.emplace_back(std::move(piece), std::move(counts), std::move(own));
      own_elements += mine;
      next = parts.size();
    }
    // Starts every piece whose turn it is.
    void launch() {
      while (next > 0 && parts[next - 1].ready.load(std::memory_order_acquire)) {
        part& p = parts[--next];
        const auto reduce = [&](const auto&... s) {
          return p.counts.front() == p.counts.back()
                     ? world.reduce_scatter(p.whole.gradient, p.own.gradient, avg, s...)
                     : world.reduce_scatter_v(p.whole.gradient, p.counts, p.own.gradient, avg, s...);
        };
        p.reducing = start(std::apply(reduce, after));
      }
    }
    communicator world;  // a duplicate of the program's
    const std::tuple<Stream...> after;
    std::deque<part> parts;
    std::size_t own_elements = 0, next = 0;  // parts[next] and those behind it have started
    bool failed = false;
  };

 public:
  // Registers the pieces, and copies the parameters of rank 0 to every rank. Collective over `c`, which it duplicates:
  // the program's collectives keep their order. `after` is a stream, for memory of a device.
  // Buffers: they stay at their addresses as long as this lives. A gradient belongs to it from ready() until reduced()
  // has completed, parameters from gather() until gathered() has.
  // Errors: errc::invalid_argument for a piece without elements or of different sizes; the others get errc::peer_left,
  // here or in reduced(). errc::mismatch if the ranks' pieces differ in size or type.
  static task<sharded> create(communicator c, std::vector<sharded_piece<B>> pieces, Stream... after) {
    sharded made;
    communicator own = co_await c.duplicate();
    state& s = *(made.state_ = std::make_shared<state>(std::move(own), std::move(after)...));
    for (sharded_piece<B>& piece : pieces) s.add(std::move(piece));
    for (part& p : s.parts)
      co_await std::apply([&](const auto&... on) { return s.world.broadcast(p.whole.parameters, 0, on...); },
                          s.after);
    co_return made;
  }

  // The elements of this rank's shares.
  std::size_t own_elements() const noexcept { return state_ ? state_->own_elements : 0; }

  // Reports that the gradient of piece i is complete for this step. Any thread may call it for host memory. For a
  // device the loop thread does, when the work that computes the gradient is on the stream.
  // Errors: throws errc::invalid_argument for an unknown piece, or one that was already ready in this step.
  void ready(std::size_t i) {
    const std::shared_ptr<state> s = usable(i);
    if (s->parts[i].ready.exchange(true, std::memory_order_acq_rel))
      throw error(errc::invalid_argument,
                  "sharded: piece " + std::to_string(i) + " is ready already: call gather() first");
    const auto executor = s->world.get_executor();
    if (executor.running_in_this_thread()) return s->launch();
    boost::asio::post(executor, [weak = std::weak_ptr(s)] {
      if (const auto still = weak.lock()) still->launch();
    });
  }

  // Waits until this rank has the average of its share of piece i, and returns what it steps. It may be awaited again.
  // With sharded_piece::reduced, the memory of the gradient may then serve another piece.
  // Errors: those of reduce_scatter; all later calls then fail. errc::invalid_argument if ready() of this piece, or of
  // one behind it, is missing.
  // Cancellation: fails it on all ranks. Destroying the awaiting frame leaves the reduction in flight.
  task<shard<B>> reduced(std::size_t i) {
    const std::shared_ptr<state> s = usable(i);
    s->launch();
    if (s->next > i)
      throw error(errc::invalid_argument, "sharded: call ready(" + std::to_string(s->next - 1) + ") first");
    co_await ended(s, &s->parts[i].reducing);
    co_return s->parts[i].own;
  }

  // Starts to gather the parameters of all pieces, which every rank has stepped its shares of. Collective.
  // Errors: throws errc::invalid_argument if a piece was not awaited by reduced() in this step, or by gathered().
  void gather() {
    const std::shared_ptr<state> s = usable(0);
    for (const part& p : s->parts)
      if (s->next > 0 || p.reducing || p.gathering)
        throw error(errc::invalid_argument,
                    "sharded: await reduced() and gathered() of each piece before gather()");
    for (part& p : s->parts) {
      p.ready.store(false, std::memory_order_relaxed);
      const auto gather = [&](const auto&... on) {
        return p.counts.front() == p.counts.back()
                   ? s->world.all_gather(p.own.parameters, p.whole.parameters, on...)
                   : s->world.all_gather_v(p.own.parameters, p.whole.parameters, p.counts, on...);
      };
      p.gathering = start(std::apply(gather, s->after));
    }
    s->next = s->parts.size();
  }

  // Waits until this rank has all ranks' shares of piece i, or of all pieces; at once if none is in flight.
  // Errors and cancellation: as reduced(), of all_gather.
  task<> gathered(std::size_t i) {
    const std::shared_ptr<state> s = usable(i);
    co_await ended(s, &s->parts[i].gathering);
  }
  task<> gathered() {
    for (std::size_t i = 0; state_ && i < state_->parts.size(); ++i) co_await gathered(i);
  }

  // Gathers optimiser state for a checkpoint, from `mine` (own_elements()) of each rank to `whole` of `root`, and
  // scatters it to any number of ranks. `whole` has an element for each parameter, in the order of the pieces; on
  // other ranks it may be empty. Collective.
  // Errors: errc::invalid_argument on a rank with a buffer of fewer elements, and errc::mismatch on the others; it
  // remains usable. Those of gather_v and scatter_v.
  task<> gather_state(B mine, B whole, int root) const { return move_state(mine, whole, root, true); }
  task<> scatter_state(B whole, B mine, int root) const { return move_state(mine, whole, root, false); }

 private:
  static std::size_t size_of(const B& b) { return extend::view_of(b).count; }
  static B slice(const B& b, std::size_t offset, std::size_t n) {
    if constexpr (extend::tensor<B>)
      return extend::tensor_access<B>::piece(b, offset, n);
    else
      return b.subspan(offset, n);
  }
  std::shared_ptr<state> usable(std::size_t i) const {
    if (!state_ || i >= state_->parts.size())
      throw error(errc::invalid_argument, "sharded: there is no piece " + std::to_string(i));
    if (state_->failed) throw error(errc::communicator_failed, "sharded: a step failed: create() another");
    return state_;
  }
  static task<> ended(std::shared_ptr<state> s, request* r) {
    if (!*r) co_return;  // was awaited before
    try {
      co_await *r;
    } catch (...) {
      s->failed = s->failed || !*r;
      throw;
    }
  }
  task<> move_state(B mine, B whole, int root, bool gather) const {
    const std::shared_ptr<state> s = usable(0);
    const bool is_root = s->world.rank() == root;
    std::size_t begin = 0, all_elements = 0;
    for (const part& p : s->parts) all_elements += is_root ? size_of(p.whole.parameters) : 0;
    const std::size_t room = is_root ? size_of(whole) : 0;
    const bool refused = size_of(mine) < s->own_elements || room < all_elements;
    int any_refused = refused ? 1 : 0;
    co_await s->world.all_reduce(any_refused, max);
    if (refused)
      throw error(errc::invalid_argument, "sharded: `mine` has " + std::to_string(size_of(mine)) +
                                              " elements of " + std::to_string(s->own_elements) +
                                              " and `whole` " + std::to_string(room) + " elements of " +
                                              std::to_string(all_elements) + " that this rank needs");
    if (any_refused != 0)
      throw error(errc::mismatch,
                  "sharded: a buffer for state is too small on another rank, whose error says which");
    for (const part& p : s->parts) {
      const std::size_t size = is_root ? size_of(p.whole.parameters) : 0;
      const B all = slice(whole, begin, size), own = slice(mine, p.own.offset, size_of(p.own.parameters));
      const auto move = [&](const auto&... on) {
        return gather ? s->world.gather_v(own, all, p.counts, root, on...)
                      : s->world.scatter_v(all, p.counts, own, root, on...);
      };
      co_await std::apply(move, s->after);
      begin += size;
    }
  }

  std::shared_ptr<state> state_;
};

}  // namespace tutti
