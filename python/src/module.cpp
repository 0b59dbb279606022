// SPDX-License-Identifier: Apache-2.0
// The Python interface: a process group for init_process_group, and support for tutti.aio.
#include "base/unique_fd.hpp"
#include "process_group.hpp"
#include "torch_runtime.hpp"
#include "track.hpp"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace py = pybind11;
using namespace tutti::python;

namespace {

// The descriptor by which finished works notify an event loop; see tutti.aio.
class finished_works {
 public:
  finished_works() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), shared_(std::make_shared<shared>()) {
    TORCH_CHECK(fd_, "tutti: cannot create an eventfd: ", std::strerror(errno), "; raise `ulimit -n`");
    shared_->fd = fd_.get();
  }
  ~finished_works() {
    const std::scoped_lock hold(shared_->mutex);
    shared_->fd = -1;
  }
  int fileno() const noexcept { return fd_.get(); }
  // drain() returns `number` after the work has finished.
  void watch(const c10::intrusive_ptr<c10d::Work>& w, std::uint64_t number) {
    ours(w).when_finished([to = shared_, number] {
      const std::scoped_lock hold(to->mutex);
      to->finished.push_back(number);
      if (to->finished.size() == 1 && to->fd >= 0) ::eventfd_write(to->fd, 1);
    });
  }
  std::vector<std::uint64_t> drain() {
    eventfd_t count = 0;
    ::eventfd_read(fd_.get(), &count);
    const std::scoped_lock hold(shared_->mutex);
    return std::exchange(shared_->finished, {});
  }
  static work& ours(const c10::intrusive_ptr<c10d::Work>& w) {
    auto* const found = dynamic_cast<work*>(w.get());
    TORCH_CHECK_VALUE(found != nullptr, "tutti.aio takes works of process groups with the backend tutti");
    return *found;
  }

 private:
  struct shared {
    std::mutex mutex;
    std::vector<std::uint64_t> finished;
    int fd = -1;
  };
  tutti::base::unique_fd fd_;
  std::shared_ptr<shared> shared_;
};

// As a Future of tutti._futures, which marks its callbacks.
py::object marked(const torch::jit::PythonFutureWrapper& f) {
  py::object made = py::module::import("tutti._futures").attr("Future")(py::list());
  auto& ours = made.cast<torch::jit::PythonFutureWrapper&>();
  ours.fut = f.fut;
  ours.unwrap_func = f.unwrap_func;
  return made;
}

template <c10::intrusive_ptr<c10::ivalue::Future> (work::*Get)()>
py::object future_of(work& w) {
  c10::intrusive_ptr<c10::ivalue::Future> f;
  {
    const py::gil_scoped_release unlocked;  // callbacks of other futures may run now
    f = (w.*Get)();
  }
  return marked(torch::jit::PythonFutureWrapper(std::move(f)));
}

c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions& given, std::string name) {
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(given.timeout);
  auto chosen = c10::make_intrusive<process_group::options>(timeout, std::move(name));
  chosen->group_name = given.group_id;
  chosen->global_ranks_in_group.assign(given.global_ranks_in_group.begin(),
                                       given.global_ranks_in_group.end());
  const bool of_all = given.global_ranks_in_group.empty();
  if (const auto all = of_all ? nullptr : process_group::of_all(given.store))
    return c10::make_intrusive<process_group>(*all, given.store, chosen->global_ranks_in_group, chosen);
  auto made =
      c10::make_intrusive<process_group>(given.store, given.group_rank, given.group_size, std::move(chosen));
  if (of_all) made->set_of_all(given.store);
  return made;
}

void handle_signals() {
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void cancel_receives() {
  if (torch_runtime* const made = torch_runtime::made(); made != nullptr) made->cancel_receives();
}

void shut_down(double seconds) {
  if (torch_runtime* const made = torch_runtime::made(); made != nullptr)
    made->shut_down(
        tutti::extend::after(tutti::python::clock::now(), std::chrono::duration<double>(seconds)));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::module::import("torch.distributed");  // registers c10d's types
  torch_runtime::handle_signals = &handle_signals;
  // torch.distributed looks for methods that the base class lacks.
  py::class_<process_group, c10d::Backend, c10::intrusive_ptr<process_group>>(m, "ProcessGroupTutti")
      // Called on the ranks that are not members of a new group, which here do nothing.
      .def(
          "perform_nocolor_split", [](process_group&, const py::object&) {}, py::arg("device"))
      .def("why_staged", &process_group::why_staged, py::call_guard<py::gil_scoped_release>())
      .def(
          "survivors",
          [](process_group& g, const py::function& offer) {
            const py::gil_scoped_release unlocked;
            process_group::survivors found = g.agree_on_survivors([&offer] {
              const py::gil_scoped_acquire lock;
              return offer().cast<std::string>();
            });
            return std::pair(std::move(found.ranks), std::move(found.offer));
          },
          py::arg("offer"))
      .def_property_readonly("timeout", &process_group::timeout)
      .def("_set_default_timeout", &process_group::setTimeout, py::arg("timeout"));
  // PyTorch hands out our works as objects of this class.
  py::class_<work, c10d::Work, c10::intrusive_ptr<work>>(m, "WorkTutti")
      .def("get_future", &future_of<&work::getFuture>)
      .def("get_future_result", &future_of<&work::getFutureResult>);
  m.def("marked", &marked, py::arg("future"));
  m.def("set_in_callback", &set_in_callback, py::arg("is"));
  m.def("create", &create, py::arg("options"), py::arg("name"), py::call_guard<py::gil_scoped_release>());
  m.def(
      "cancel", [](const c10::intrusive_ptr<c10d::Work>& w) { finished_works::ours(w).cancel(); },
      py::call_guard<py::gil_scoped_release>());
  py::class_<finished_works>(m, "FinishedWorks")
      .def(py::init<>())
      .def("fileno", &finished_works::fileno)
      .def("watch", &finished_works::watch, py::call_guard<py::gil_scoped_release>())
      .def("drain", &finished_works::drain);
  m.def("cancel_receives", &cancel_receives, py::call_guard<py::gil_scoped_release>());
  m.def("shut_down", &shut_down, py::arg("seconds"), py::call_guard<py::gil_scoped_release>());
  bind_track(m);
}
