// SPDX-License-Identifier: Apache-2.0
#include "launch/job_output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/files.hpp"
#include "base/text.hpp"
#include "launch/children.hpp"
#include "launch/run_after.hpp"

namespace tutti::launch {
namespace {

constexpr std::size_t chunk_bytes = 64 * 1024;
constexpr int chunks_per_turn = 8;  // then the other ranks get their turn
constexpr std::size_t tail_bytes = 4096;
constexpr auto for_last_words = std::chrono::milliseconds(500);

}  // namespace

// ---- one stream ----

output_pump::output_pump(boost::asio::io_context& loop, int rank, route way, speakers& all, output_sink& to,
                         std::function<void()> closed)
    : rank_(rank),
      way_(std::move(way)),
      source_(loop, way_.source.get()),
      to_(to),
      prefixer_(rank, all, to),
      closed_(std::move(closed)) {
  way_.source.release();
  source_.native_non_blocking(true);
}

void output_pump::finish() {
  if (closed() || left_bytes_) return;
  int bytes = 0;
  ::ioctl(source_.native_handle(), FIONREAD, &bytes);
  left_bytes_ = static_cast<std::size_t>(bytes);
  if (waiting_) source_.cancel();  // its handler reads what is left
}

void output_pump::start() {
  waiting_ = true;
  source_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this](const boost::system::error_code&) {
                       waiting_ = false;
                       transfer();
                     });
}

void output_pump::transfer() {
  static std::array<char, chunk_bytes> buffer;  // all pumps run on one thread, and none keeps bytes in it
  for (int chunk = 0; chunk < chunks_per_turn; ++chunk) {
    if (left_bytes_ == 0) return close();
    if (to_.congested()) return to_.when_relieved([this] { transfer(); });
    const ssize_t bytes = ::read(source_.native_handle(), buffer.data(), buffer.size());
    if (bytes > 0) {
      if (left_bytes_) *left_bytes_ -= std::min(*left_bytes_, static_cast<std::size_t>(bytes));
      deliver({buffer.data(), static_cast<std::size_t>(bytes)});
    } else if (bytes < 0 && errno == EINTR) {
      continue;
    } else if (bytes < 0 && errno == EAGAIN && !left_bytes_) {
      break;
    } else {
      return close();
    }
  }
  start();
}

void output_pump::deliver(std::string_view bytes) {
  if (way_.log && base::write_all(way_.log.get(), bytes) != bytes.size()) {
    const int error = errno;
    way_.log.reset();
    way_.log_failed(error);
  }
  tail_ += bytes.substr(bytes.size() - std::min(bytes.size(), tail_bytes));
  if (tail_.size() > 2 * tail_bytes) tail_.erase(0, tail_.size() - tail_bytes);
  if (way_.shown) prefixer_.feed(bytes);
}

void output_pump::close() {
  source_.close();
  way_.log.reset();
  prefixer_.finish();
  closed_();
}

// ---- all of them ----

job_output::job_output(boost::asio::io_context& loop, const options& o, std::function<void()> reader_gone)
    : loop_(loop),
      log_dir_(o.log_dir),
      quiet_(o.quiet),
      speakers_(o.tag_output),
      output_(loop, STDOUT_FILENO),
      separate_error_(same_file(STDOUT_FILENO, STDERR_FILENO)
                          ? nullptr
                          : std::make_unique<output_sink>(loop, STDERR_FILENO)) {
  output_.when_broken([this, gone = std::move(reader_gone)] {
    if (output_.error() == EPIPE) gone();
  });
  if (log_dir_.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(log_dir_, failure);
  if (failure)
    throw std::runtime_error(
        fmt::format("cannot make the directory '{}' of --log-dir: {}", log_dir_, failure.message()));
}

base::unique_fd job_output::connect_stream(std::list<output_pump>& made, int rank, int restarts,
                                           const char* suffix, output_sink& to) {
  output_pump::route way;
  base::unique_fd writer;
  make_pipe(way.source, writer);
  if (!log_dir_.empty()) {
    const std::string log = fmt::format("{}/rank-{}{}.{}", log_dir_, rank,
                                        restarts == 0 ? "" : fmt::format(".restart-{}", restarts), suffix);
    way.log.reset(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!way.log)
      throw std::runtime_error(fmt::format("cannot write the log file '{}': {}", log, std::strerror(errno)));
    way.log_failed = [this, log](int error) {
      // Reported once for all: if one file has no room, the others have none either.
      if (std::exchange(log_incomplete_, true)) return;
      say(fmt::format(
          "tutti-run: the log file '{}' is incomplete: {}. The job goes on; of others it is not said again\n",
          log, base::write_error_text(error)));
    };
  }
  way.shown = !quiet_;
  made.emplace_back(loop_, rank, std::move(way), speakers_, to, [this] { pump_closed(); });
  return writer;
}

job_output::rank_pipes job_output::connect(int rank, int restarts) {
  std::list<output_pump> both;
  rank_pipes pipes;
  pipes.output = connect_stream(both, rank, restarts, "out", output_);
  pipes.error = connect_stream(both, rank, restarts, "err", error_sink());
  open_pumps_ += both.size();
  const auto first = both.begin();
  pumps_.splice(pumps_.end(), both);
  for (auto pump = first; pump != pumps_.end(); ++pump) pump->start();
  return pipes;
}

std::vector<std::string> job_output::last_error_lines(int rank, std::size_t count) const {
  // The last one, for a rank that was restarted.
  const auto found =
      std::find_if(pumps_.rbegin(), pumps_.rend(), [&](const output_pump& p) { return p.rank() == rank; });
  std::vector<std::string> lines;
  if (found == pumps_.rend()) return lines;
  std::istringstream text{std::string(found->tail())};
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

void job_output::pump_closed() {
  if (--open_pumps_ > 0 || !finished_) return;
  patience_.cancel();
  boost::asio::post(loop_, std::exchange(finished_, nullptr));
}

void job_output::finish(std::function<void()> done) {
  if (open_pumps_ == 0) return boost::asio::post(loop_, std::move(done));
  finished_ = std::move(done);
  run_after(patience_, for_last_words, [this] {
    for (output_pump& pump : pumps_) pump.finish();
  });
}

void job_output::drain(std::function<void()> done) {
  output_.when_drained(
      [this, done = std::move(done)]() mutable { error_sink().when_drained(std::move(done)); });
}

void job_output::give_up_after(std::chrono::milliseconds patience) {
  output_.give_up_after(patience);
  if (separate_error_) separate_error_->give_up_after(patience);
}

std::string job_output::losses() const {
  if (output_.error() == 0 || output_.error() == EPIPE) return "";
  return fmt::format("tutti-run: standard output is incomplete: {}\n",
                     output_.error() == ECANCELED ? "nobody read it when the job was stopped"
                                                  : base::write_error_text(output_.error()));
}

}  // namespace tutti::launch
