// SPDX-License-Identifier: Apache-2.0
#include "track.hpp"

#include <tutti/track.hpp>

#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tutti/error.hpp>
#include <tutti/runtime.hpp>
#include <utility>
#include <variant>
#include <vector>

namespace py = pybind11;

namespace tutti::python {
namespace {

using std::chrono::steady_clock;

// A log that any thread may use, and that the loop thread may close.
struct shared_log {
  std::mutex mutex;
  track::log log;  // empty once closed; destroyed on the loop thread
  std::optional<track::totals> ended;

  // On the loop thread: closes the log without a finish, unless it has ended.
  void close() {
    track::log taken;
    {
      const std::scoped_lock hold(mutex);
      taken = std::exchange(log, {});
      if (!ended) ended = taken.so_far();
    }
  }
};
using log_ref = std::shared_ptr<shared_log>;

// A result that a Python thread waits for and the loop thread sets.
template <class T>
class outcome {
 public:
  void set(const std::exception_ptr& failure, T value) {
    const std::scoped_lock hold(mutex_);
    if (is_abandoned_) return;
    failure_ = failure;
    value_ = std::move(value);
    is_set_ = true;
    changed_.notify_all();
  }
  // Returns true if it was set in time.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock hold(mutex_);
    return changed_.wait_for(hold, time, [this] { return is_set_; });
  }
  T take() {
    const std::scoped_lock hold(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    return std::move(value_);
  }
  // Returns the result if it is set. A later result is destroyed by the thread that sets it.
  T abandon() {
    const std::scoped_lock hold(mutex_);
    is_abandoned_ = true;
    return std::exchange(value_, T());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
  bool is_abandoned_ = false;
  std::exception_ptr failure_;
  T value_{};
};

// Runs on the loop thread. `make` returns the task<T>.
template <class T, class F>
void run_into(const std::shared_ptr<outcome<T>>& done, F make) noexcept {
  try {
    make()([done](std::exception_ptr failure, T value) { done->set(failure, std::move(value)); });
  } catch (...) {
    done->set(std::current_exception(), T());
  }
}

// One runtime for all logs of this process. Never destroyed, because Python may end in any order.
class track_loop {
 public:
  // Starts the thread at the first call, and again in a forked child. Needs the interpreter's lock.
  static track_loop& get() {
    if (only_ == nullptr || only_->process_ != ::getpid()) only_ = new track_loop;
    return *only_;
  }
  // nullptr if this process has none.
  static track_loop* made() noexcept {
    return only_ != nullptr && only_->process_ == ::getpid() ? only_ : nullptr;
  }

  template <class F>
  void post(F f) {
    boost::asio::post(context_, std::move(f));
  }
  // On the loop thread.
  void add(const log_ref& log) {
    std::erase_if(logs_, [](const auto& known) { return known.expired(); });
    logs_.push_back(log);
  }

  // Closes all open logs, and ends the thread if that succeeds within `time`. Rejects later posts.
  void shut_down(std::chrono::milliseconds time) {
    if (is_shut_down_.exchange(true)) return;
    const auto closed = std::make_shared<outcome<bool>>();
    post([this, closed] {
      // Each destructor waits until its queue is written.
      for (const auto& known : logs_)
        if (const log_ref log = known.lock()) log->close();
      guard_.reset();
      closed->set({}, true);
    });
    if (closed->wait_for(time)) {
      context_.stop();
      thread_.join();
    } else {
      thread_.detach();
    }
  }
  bool is_shut_down() const noexcept { return is_shut_down_; }

 private:
  track_loop() : thread_([this] { context_.run(); }) {}

  static inline track_loop* only_ = nullptr;
  const ::pid_t process_ = ::getpid();
  std::atomic<bool> is_shut_down_{false};
  boost::asio::io_context context_{1};
  tutti::runtime runtime_{context_};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{context_.get_executor()};
  std::vector<std::weak_ptr<shared_log>> logs_;  // on the loop thread
  std::thread thread_;
};

[[noreturn]] void throw_python(PyObject* kind, const char* text) {
  PyErr_SetString(kind, text);
  throw py::error_already_set();
}

// Waits without the interpreter's lock, and regularly checks for Ctrl-C. Throws tutti's error for Python.
template <class T>
T wait(const std::shared_ptr<outcome<T>>& of) {
  for (;;) {
    bool is_set = false;
    {
      const py::gil_scoped_release unlocked;
      is_set = of->wait_for(std::chrono::milliseconds(100));
    }
    if (is_set) break;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  try {
    return of->take();
  } catch (const error& e) {
    if (e.code() == errc::invalid_argument) throw_python(PyExc_ValueError, e.what());
    if (e.code() == errc::timed_out) throw_python(PyExc_TimeoutError, e.what());
    if (e.code() == errc::system) throw_python(PyExc_OSError, e.what());
    throw_python(PyExc_RuntimeError, e.what());
  }
}

task<log_ref> open_log(track_loop* loop, track::options o) {
  track::log opened = co_await track::open(std::move(o));
  auto made = std::make_shared<shared_log>();
  made->log = std::move(opened);
  loop->add(made);
  co_return made;
}

task<track::totals> finish_log(track::log log) {
  track::totals t = co_await log.finish();
  co_return t;
}

class python_log {
 public:
  explicit python_log(const track::options& o) : loop_(&track_loop::get()) {
    if (loop_->is_shut_down())
      throw_python(PyExc_RuntimeError, "tutti.track.open was called while Python ends; open the log earlier");
    const auto done = std::make_shared<outcome<log_ref>>();
    track_loop* const loop = loop_;
    loop->post([loop, o, done] { run_into(done, [&] { return open_log(loop, o); }); });
    try {
      shared_ = wait(done);
    } catch (...) {
      // After Ctrl-C the log must be destroyed on the loop thread.
      loop->post([kept = done->abandon()] {
        if (kept) kept->close();
      });
      throw;
    }
    directory_ = shared_->log.directory().string();
  }
  python_log(const python_log&) = delete;
  python_log& operator=(const python_log&) = delete;
  ~python_log() {
    if (!shared_) return;
    if (track_loop::made() != loop_ || loop_->is_shut_down()) {
      // Leaked, because its loop thread belongs to the parent or has ended.
      static_cast<void>(new log_ref(std::move(shared_)));
      return;
    }
    loop_->post([kept = std::move(shared_)] { kept->close(); });
  }

  const std::string& directory() const noexcept { return directory_; }

  // Calls f(log), which must not block.
  template <class F>
  void say(F f) {
    check_process();
    const std::scoped_lock hold(shared_->mutex);
    f(shared_->log);
  }

  track::totals so_far() {
    check_process();
    const std::scoped_lock hold(shared_->mutex);
    return shared_->ended ? *shared_->ended : shared_->log.so_far();
  }

  track::totals finish() {
    if (has_ended()) return so_far();
    const auto done = std::make_shared<outcome<track::totals>>();
    loop_->post([shared = shared_, done] {
      track::log log;
      {
        const std::scoped_lock hold(shared->mutex);
        log = shared->log;
      }
      run_into(done, [&] { return finish_log(log); });
    });
    track::totals t = wait(done);
    const std::scoped_lock hold(shared_->mutex);
    if (!shared_->ended || t.complete) shared_->ended = t;
    return t;
  }

  void close() {
    if (has_ended()) return;
    const auto done = std::make_shared<outcome<bool>>();
    loop_->post([shared = shared_, done] {
      shared->close();
      done->set({}, true);
    });
    wait(done);
  }

 private:
  bool has_ended() {
    check_process();
    const std::scoped_lock hold(shared_->mutex);
    return shared_->ended || loop_->is_shut_down();
  }
  void check_process() const {
    if (track_loop::made() != loop_)
      throw_python(
          PyExc_RuntimeError,
          "this log was opened by the process that forked this one; open one here, with a label of its own");
  }

  track_loop* const loop_;
  log_ref shared_;
  std::string directory_;
};

std::chrono::milliseconds milliseconds_of(double seconds) {
  constexpr double a_year = 365.0 * 24 * 3600;
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * std::clamp(seconds, 0.0, a_year)));
}

std::unique_ptr<python_log> open(std::string id, std::string label, std::string directory, std::string name,
                                 const std::string& resume, const std::string& layout, bool console,
                                 std::size_t buffer_bytes, double system_metrics, double heartbeat,
                                 double open_timeout, double finish_timeout) {
  track::options o;
  o.id = std::move(id);
  o.label = std::move(label);
  o.directory = std::move(directory);
  o.name = std::move(name);
  if (resume == "must") {
    o.resume = track::resume::must;
  } else if (resume == "never") {
    o.resume = track::resume::never;
  } else if (resume != "may") {
    throw py::value_error("resume=\"" + resume + "\": it is \"must\", \"may\" or \"never\"");
  }
  if (layout == "run_per_rank") {
    o.ranks = track::layout::run_per_rank;
  } else if (layout != "single_run") {
    throw py::value_error("layout=\"" + layout + "\": it is \"single_run\" or \"run_per_rank\"");
  }
  o.console = console;
  o.buffer_bytes = buffer_bytes;
  o.system_metrics = milliseconds_of(system_metrics);
  o.heartbeat = milliseconds_of(heartbeat);
  o.open_timeout = milliseconds_of(open_timeout);
  o.finish_timeout = milliseconds_of(finish_timeout);
  return std::make_unique<python_log>(o);
}

py::tuple tuple_of(const track::totals& t) {
  return py::make_tuple(t.written, t.dropped, t.failed, t.complete, t.failure);
}

using hyperparameters = std::map<std::string, std::variant<bool, std::int64_t, double, std::string>>;

}  // namespace

void bind_track(py::module_& m) {
  m.def("track_open", &open);
  m.def(
      "track_shut_down",
      [](double seconds) {
        if (track_loop* const loop = track_loop::made(); loop != nullptr) {
          const py::gil_scoped_release unlocked;
          loop->shut_down(milliseconds_of(seconds));
        }
      },
      py::arg("seconds"));
  py::class_<python_log>(m, "TrackLog")
      .def_property_readonly("directory", &python_log::directory)
      .def("scalar",
           [](python_log& l, std::string_view name, double number, std::int64_t step) {
             l.say([&](const track::log& log) { log.scalar(name, step, number); });
           })
      .def("text",
           [](python_log& l, std::string_view name, std::string_view value, std::int64_t step) {
             l.say([&](const track::log& log) { log.text(name, step, value); });
           })
      .def("hyperparameters",
           [](python_log& l, const hyperparameters& given) {
             track::hyperparameter_map values;
             for (const auto& [name, held] : given)
               values.insert_or_assign(name, std::visit([](const auto& v) { return track::value(v); }, held));
             l.say([&](const track::log& log) { log.hyperparameters(values); });
           })
      .def("image",
           [](python_log& l, std::string_view name, const py::bytes& samples, int width, int height,
              int channels, std::int64_t step) {
             const std::string_view bytes = samples;
             track::image_view pixels;
             pixels.width = width;
             pixels.height = height;
             pixels.channels = channels;
             pixels.samples = {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
             l.say([&](const track::log& log) { log.image(name, step, pixels); });
           })
      .def("artifact_bytes",
           [](python_log& l, std::string_view name, const py::bytes& content) {
             const std::string_view bytes = content;
             l.say([&](const track::log& log) {
               log.artifact(name, std::as_bytes(std::span(bytes.data(), bytes.size())));
             });
           })
      .def("artifact_file",
           [](python_log& l, std::string_view name, const std::string& path) {
             l.say([&](const track::log& log) { log.artifact(name, std::filesystem::path(path)); });
           })
      .def("so_far", [](python_log& l) { return tuple_of(l.so_far()); })
      .def("finish", [](python_log& l) { return tuple_of(l.finish()); })
      .def("close", &python_log::close);
}

}  // namespace tutti::python
