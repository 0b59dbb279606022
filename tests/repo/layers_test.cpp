// SPDX-License-Identifier: Apache-2.0
// Layers are folders: checks every #include of the tree, and every name with a layer in it, against the permitted ones.
#include "repo/source_tree.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using findings = std::vector<std::string>;

const std::vector<std::string> sources_and_headers{".cpp", ".hpp"};

// The layers of each row of the table in ARCHITECTURE.md, from its top: `a/ text   |   b/ text`.
std::vector<std::vector<std::string>> rows_of(const std::string& architecture) {
  const std::string fence = "\n```\n";
  std::vector<std::vector<std::string>> rows;
  const std::size_t begin = architecture.find(fence, architecture.find("\n## Layers\n"));
  std::istringstream table(architecture.substr(begin + fence.size()));
  for (std::string line; std::getline(table, line) && line != "```";) {
    std::vector<std::string>& row = rows.emplace_back();
    for (std::size_t at = 0; at != line.npos; at = line.find_first_not_of(" |", line.find(" | ", at)))
      row.push_back(line.substr(at, line.find('/', at) - at));
  }
  return rows;
}

// Rows from the bottom. A layer includes its own row and the rows below.
const std::map<std::string, int>& row_of_layer() {
  static const std::map<std::string, int> all = [] {
    std::map<std::string, int> result;
    const auto rows = rows_of(repo::read("ARCHITECTURE.md"));
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (const std::string& layer : rows[i]) result[layer] = static_cast<int>(rows.size() - 1 - i);
    return result;
  }();
  return all;
}

// Layers with narrower limits than their row: matching is pure data, training and tracking are beside the runtime
// and use its public headers, the launcher is beside the rest of the library.
const std::map<std::string, std::set<std::string>> narrow_layers{
    {"base", {"base"}},
    {"flight", {"flight", "base"}},
    {"match", {"match", "base"}},
    {"launch", {"launch", "bootstrap", "flight", "base"}},
    {"train", {"train", "base"}},
    {"track", {"track", "base"}},
    {"report", {"report", "track", "base"}}};

// Foreign libraries, and the prefixes of paths that may use them.
struct vendor {
  const char* header_prefix;
  std::vector<std::string> rooms;
};
const std::vector<vendor> vendors{
    {"liburing", {"src/core/uring_backend"}},
    {"nettle/", {"src/base/base64", "src/base/hmac"}},
    {"openssl/", {"src/core/tls_openssl", "tests/support/certificates"}},
    {"CLI/", {"src/launch/", "src/report/main", "examples/", "perf/"}},
    {"Eigen/",
     {"examples/only_here/tensor_parallel", "examples/train_digits/", "examples/train_mnist/",
      "tests/examples/"}},
    {"fmt/", {"src/", "tests/", "gpu/src/"}},
    {"cuda.h", {"tests/gpu/cuda_abi_test"}},
    {"nccl.h", {"tests/gpu/nccl_abi_test"}},
    {"level_zero/ze", {"gpu/src/level_zero/", "tests/gpu/fakes/level_zero/"}},
    {"oneapi/", {"tests/gpu/oneccl_abi_test"}},
    {"sycl/", {"gpu/include/tutti/sycl"}},
    {"stdexec/", {"tests/comm/senders_test"}},
    {"zlib.h", {"examples/train_digits/", "tests/examples/"}},
    {"mpi.h", {"perf/", "src/transport/mpi/mpi_module", "tests/programs/mpi_by_itself"}},
    {"mpi_abi.h", {"tests/transport/mpi_abi_test"}},
    {"nlohmann/",
     {"perf/common/", "src/bootstrap/etcd_", "src/report/", "src/track/", "tests/perf/", "tests/track/",
      "tests/report/", "tests/bootstrap/etcd_", "tests/launch/"}},
    {"doctest/", {"tests/"}},
};

const std::set<std::string> standard_headers{"algorithm",
                                             "any",
                                             "array",
                                             "atomic",
                                             "barrier",
                                             "bit",
                                             "bitset",
                                             "cassert",
                                             "cctype",
                                             "cerrno",
                                             "cfenv",
                                             "cfloat",
                                             "charconv",
                                             "chrono",
                                             "cinttypes",
                                             "climits",
                                             "clocale",
                                             "cmath",
                                             "codecvt",
                                             "compare",
                                             "complex",
                                             "concepts",
                                             "condition_variable",
                                             "coroutine",
                                             "csetjmp",
                                             "csignal",
                                             "cstdarg",
                                             "cstddef",
                                             "cstdint",
                                             "cstdio",
                                             "cstdlib",
                                             "cstring",
                                             "ctime",
                                             "cuchar",
                                             "cwchar",
                                             "cwctype",
                                             "deque",
                                             "exception",
                                             "execution",
                                             "filesystem",
                                             "forward_list",
                                             "fstream",
                                             "functional",
                                             "future",
                                             "initializer_list",
                                             "iomanip",
                                             "ios",
                                             "iosfwd",
                                             "iostream",
                                             "istream",
                                             "iterator",
                                             "latch",
                                             "limits",
                                             "list",
                                             "locale",
                                             "map",
                                             "memory",
                                             "memory_resource",
                                             "mutex",
                                             "new",
                                             "numbers",
                                             "numeric",
                                             "optional",
                                             "ostream",
                                             "queue",
                                             "random",
                                             "ranges",
                                             "ratio",
                                             "regex",
                                             "scoped_allocator",
                                             "semaphore",
                                             "set",
                                             "shared_mutex",
                                             "source_location",
                                             "span",
                                             "sstream",
                                             "stack",
                                             "stdexcept",
                                             "stop_token",
                                             "streambuf",
                                             "string",
                                             "string_view",
                                             "syncstream",
                                             "system_error",
                                             "thread",
                                             "tuple",
                                             "type_traits",
                                             "typeindex",
                                             "typeinfo",
                                             "unordered_map",
                                             "unordered_set",
                                             "utility",
                                             "valarray",
                                             "variant",
                                             "vector",
                                             "version"};

bool starts_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return text.rfind(prefix, 0) == 0; });
}

std::string first_folder(const std::string& path) { return path.substr(0, path.find('/')); }

std::string at(const std::string& path, const repo::include_directive& include) {
  return path + ":" + std::to_string(include.line) + " includes " + include.name;
}

bool may_include(const std::string& layer, const std::string& other) {
  if (const auto narrow = narrow_layers.find(layer); narrow != narrow_layers.end())
    return narrow->second.contains(other);
  const auto& rows = row_of_layer();
  const auto own_row = rows.find(layer), other_row = rows.find(other);
  return own_row != rows.end() && other_row != rows.end() && other_row->second <= own_row->second;
}

struct named {
  std::string name;
  int line = 0;
  bool operator==(const named&) const = default;
};

// Namespaces of tutti that code opens or names: x of `x::y`, `tutti::x::y` and `namespace tutti::x {`.
std::vector<named> namespaces_in(const std::string& text) {
  const std::string code = repo::code_only(text);
  const auto in_word = [&code](std::size_t i) {
    return i < code.size() && (std::isalnum(static_cast<unsigned char>(code[i])) != 0 || code[i] == '_');
  };
  std::vector<named> found;
  std::string before, second;  // the last two words
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (!in_word(i)) continue;
    const std::size_t begin = i;
    while (in_word(i)) ++i;
    const std::string word = code.substr(begin, i - begin);
    const bool is_inner = begin >= 2 && code.compare(begin - 2, 2, "::") == 0;
    const std::size_t next = std::min(code.find_first_not_of(" \n", i), code.size());
    const bool opens = code.compare(next, 1, "{") == 0 &&
                       (before == "namespace" || (before == "tutti" && second == "namespace"));
    if (word != "tutti" && (!is_inner || before == "tutti") && (opens || code.compare(next, 2, "::") == 0))
      found.push_back({word, repo::line_of(code, begin)});
    second = std::exchange(before, word);
  }
  return found;
}

// The parts of the runtime, and what stands beside it.
const std::set<std::string> layers_of_runtime{"core", "match", "transport", "bootstrap", "p2p",
                                              "comm", "ops",   "coll",      "flight",    "launch"};
constexpr const char* beside_runtime[] = {"gpu",   "cuda",     "nccl",  "oneccl", "level_zero", "emulated",
                                          "train", "training", "track", "sim",    "torch",      "python"};

bool is_beside(const std::string& path) {
  return starts_with_any(path, {"gpu/", "python/", "src/train/", "src/track/", "include/tutti/train",
                                "include/tutti/track", "include/tutti/torch"});
}

// The file of the tree that an include directive in `path` names; nothing for a system header.
std::optional<std::string> file_meant(const std::string& path, const repo::include_directive& include) {
  if (include.name.rfind("tutti/", 0) == 0) {
    const std::string of_devices = "gpu/include/" + include.name;
    return repo::fs::is_regular_file(repo::root() / of_devices) ? of_devices : "include/" + include.name;
  }
  if (!include.quoted) return std::nullopt;
  const std::string tree = first_folder(path);
  return (tree == "gpu" ? "gpu/src/" : tree + "/") + include.name;
}

// A cycle of names as text; nothing if the graph has none.
std::optional<std::string> cycle_in(const std::map<std::string, std::set<std::string>>& edges) {
  std::map<std::string, int> state;  // 1: visiting, 2: done
  std::vector<std::string> way;
  std::optional<std::string> cycle;
  const std::function<void(const std::string&)> visit = [&](const std::string& node) {
    state[node] = 1;
    way.push_back(node);
    if (const auto next = edges.find(node); next != edges.end())
      for (const std::string& other : next->second) {
        if (cycle) break;
        if (state[other] == 0)
          visit(other);
        else if (state[other] == 1) {
          cycle.emplace();
          for (auto i = std::find(way.begin(), way.end(), other); i != way.end(); ++i) *cycle += *i + " -> ";
          *cycle += other;
        }
      }
    way.pop_back();
    state[node] = 2;
  };
  for (const auto& [node, others] : edges)
    if (!cycle && state[node] == 0) visit(node);
  return cycle;
}

}  // namespace

TEST_CASE("ARCHITECTURE.md lists every layer, and no other") {
  std::set<std::string> listed, folders;
  for (const auto& [layer, row] : row_of_layer()) listed.insert(layer);
  for (const char* program : {"launch", "report"}) listed.insert(program);
  for (const auto& entry : repo::fs::directory_iterator(repo::root() / "src"))
    if (entry.is_directory()) folders.insert(entry.path().filename().string());
  CHECK(listed == folders);
}

TEST_CASE("rows of layers are read from a table") {
  const auto rows = rows_of("x\n## Layers\n\ntext\n\n```\ntop/  on c\na/ one   |   b/ two\n```\n");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].front() == "top");
  CHECK(rows[1] == std::vector<std::string>{"a", "b"});
}

TEST_CASE("a layer includes only its own row and the rows below") {
  findings upward;
  for (const std::string& path : repo::files_below("src", sources_and_headers)) {
    const std::string layer = first_folder(path.substr(4));
    for (const repo::include_directive& include : repo::includes_of(repo::read(path)))
      if (include.quoted && !may_include(layer, first_folder(include.name)))
        upward.push_back(at(path, include));
  }
  repo::check_none(upward, "upward edges between layers; move what is shared down, or pass it in:");
}

// A declaration in advance, or a name, crosses a border as an include does.
TEST_CASE("a layer names only its own row and the rows below") {
  findings upward;
  for (const std::string& path : repo::files_below("src", sources_and_headers)) {
    const std::string layer = first_folder(path.substr(4));
    for (const auto& [name, line] : namespaces_in(repo::read(path))) {
      if (row_of_layer().contains(name) && !may_include(layer, name))
        upward.push_back(path + ":" + std::to_string(line) + " names " + name + "::");
    }
  }
  repo::check_none(upward, "names of layers above; move what is shared down, or pass it in:");
}

TEST_CASE("what stands beside the runtime uses public headers, extend/ and base/ only") {
  findings inside;
  for (const char* tree : {"gpu", "python/src", "src/train", "src/track", "include/tutti"})
    for (const std::string& path : repo::files_below(tree, sources_and_headers)) {
      if (!is_beside(path)) continue;
      const std::string text = repo::read(path);
      for (const repo::include_directive& include : repo::includes_of(text)) {
        const bool own = !include.quoted || repo::fs::exists(repo::root() / "python/src" / include.name);
        if (include.name.starts_with("tutti/detail/") ||
            (path.starts_with("python/") && !own && first_folder(include.name) != "base"))
          inside.push_back(at(path, include));
      }
      for (const auto& [name, line] : namespaces_in(text))
        if (name == "detail" || (layers_of_runtime.contains(name) && !may_include("track", name)))
          inside.push_back(path + ":" + std::to_string(line) + " names " + name + "::");
    }
  repo::check_none(inside, "the inside of the runtime; promise it in include/tutti/extend/, or do without:");
}

TEST_CASE("the runtime names nothing that stands beside it") {
  findings outward;
  for (const char* tree : {"include/tutti", "src"})
    for (const std::string& path : repo::files_below(tree, sources_and_headers)) {
      const std::string layer = first_folder(path.substr(4));
      if (is_beside(path) || path.starts_with("include/tutti/sim") || layer == "sim" || layer == "report")
        continue;
      for (const auto& [name, line] : namespaces_in(repo::read(path)))
        if (std::ranges::find(beside_runtime, name) != std::end(beside_runtime))
          outward.push_back(path + ":" + std::to_string(line) + " names " + name + "::");
    }
  repo::check_none(outward, "what stands beside; extend/ has what both need:");
}

TEST_CASE("extend/ names none of its users, in comments neither") {
  const std::regex users("\\b(gpu|nccl|cuda|torch|python|train|track|data_parallel)\\b", std::regex::icase);
  findings named;
  for (const std::string& path : repo::files_below("include/tutti/extend", sources_and_headers)) {
    const std::string text = repo::read(path);
    if (std::smatch found; std::regex_search(text, found, users))
      named.push_back(path + ":" +
                      std::to_string(repo::line_of(text, static_cast<std::size_t>(found.position()))) +
                      " names " + found.str());
  }
  repo::check_none(named, "the interface serves any library:");
}

TEST_CASE("names of namespaces are found in code") {
  const auto found =
      namespaces_in("// a::b\nnamespace tutti::c {\nd::e f; }  // namespace tutti::c\nasio::detail::g h;\n");
  CHECK((found == std::vector<named>{{"c", 2}, {"d", 3}, {"asio", 4}}));
}

TEST_CASE("a quoted include names a file below the root of its own tree") {
  findings dangling;
  for (const char* tree : {"src", "include", "examples", "perf", "gpu"})
    for (const std::string& path : repo::files_below(tree, sources_and_headers))
      for (const repo::include_directive& include : repo::includes_of(repo::read(path))) {
        const std::optional<std::string> meant = file_meant(path, include);
        if (meant && !repo::fs::is_regular_file(repo::root() / *meant)) dangling.push_back(at(path, include));
      }
  repo::check_none(dangling,
                   "no such file (private headers are out of reach of include/, examples/ and perf/):");
}

TEST_CASE("includes make no cycle, neither of files nor of layers") {
  std::map<std::string, std::set<std::string>> files, layers;
  for (const char* tree : {"src", "include", "gpu"})
    for (const std::string& path : repo::files_below(tree, sources_and_headers))
      for (const repo::include_directive& include : repo::includes_of(repo::read(path))) {
        const std::optional<std::string> meant = file_meant(path, include);
        if (!meant) continue;
        files[path].insert(*meant);
        if (path.rfind("src/", 0) != 0 || meant->rfind("src/", 0) != 0) continue;
        const std::string from = first_folder(path.substr(4)), to = first_folder(meant->substr(4));
        if (from != to) layers[from].insert(to);
      }
  CHECK_MESSAGE(!files.empty(), "no file includes another: is the source directory right?");
  CHECK_MESSAGE(!cycle_in(files), "files: " << cycle_in(files).value_or(""));
  CHECK_MESSAGE(!cycle_in(layers), "layers: " << cycle_in(layers).value_or(""));
}

// ARCHITECTURE.md has a table of each folder's parts. A part is a header with its source.
TEST_CASE("the parts of comm/ and of p2p/ depend on each other in one direction") {
  const auto part = [](const std::string& path) { return path.substr(0, path.rfind('.')); };
  for (const char* folder : {"src/comm", "src/p2p"}) {
    std::map<std::string, std::set<std::string>> parts;
    for (const std::string& path : repo::files_below(folder, sources_and_headers))
      for (const repo::include_directive& include : repo::includes_of(repo::read(path))) {
        const std::optional<std::string> meant = file_meant(path, include);
        if (meant && part(*meant) != part(path)) parts[part(path)].insert(part(*meant));
      }
    CHECK_FALSE(parts.empty());
    CHECK_MESSAGE(!cycle_in(parts), cycle_in(parts).value_or(""));
  }
}

TEST_CASE("public headers include no vendor and no operating system") {
  findings foreign;
  std::vector<std::string> headers = repo::files_below("include", sources_and_headers);
  for (const std::string& path : repo::files_below("gpu/include", sources_and_headers))
    headers.push_back(path);
  for (const std::string& path : headers)
    for (const repo::include_directive& include : repo::includes_of(repo::read(path))) {
      const bool known = standard_headers.contains(include.name) ||
                         starts_with_any(include.name, {"tutti/", "boost/asio/", "boost/system/"});
      // Headers of the library that they integrate.
      const bool sycl = path == "gpu/include/tutti/sycl.hpp" && include.name == "sycl/sycl.hpp";
      const bool torch =
          path.starts_with("include/tutti/torch/") && starts_with_any(include.name, {"ATen/", "torch/"});
      if (include.quoted || !(known || sycl || torch)) foreign.push_back(at(path, include));
    }
  repo::check_none(foreign,
                   "only <tutti/...>, the standard library, Asio and Boost.System are public vocabulary:");
}

TEST_CASE("a foreign library is used only in its own folders") {
  findings outside;
  for (const char* tree : {"src", "examples", "perf", "tests", "gpu"})
    for (const std::string& path : repo::files_below(tree, sources_and_headers))
      for (const repo::include_directive& include : repo::includes_of(repo::read(path)))
        for (const vendor& other : vendors)
          if (include.name.rfind(other.header_prefix, 0) == 0 && !starts_with_any(path, other.rooms))
            outside.push_back(at(path, include));
  repo::check_none(outside, "vendor headers outside their room (the table is in this test):");
}

TEST_CASE("matching is pure data: no header of the operating system") {
  findings impure;
  for (const std::string& path : repo::files_below("src/match", sources_and_headers))
    for (const repo::include_directive& include : repo::includes_of(repo::read(path)))
      if (!include.quoted && !standard_headers.contains(include.name) &&
          !starts_with_any(include.name, {"tutti/", "fmt/"}))
        impure.push_back(at(path, include));
  repo::check_none(impure, "match/ does no I/O and knows no clock:");
}

TEST_CASE("a cycle is found") {
  CHECK_FALSE(cycle_in({{"a", {"b", "c"}}, {"b", {"c"}}}));
  CHECK(cycle_in({{"a", {"b"}}, {"b", {"c"}}, {"c", {"b"}}}) == "b -> c -> b");
}
