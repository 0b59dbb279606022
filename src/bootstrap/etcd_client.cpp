// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/etcd_client.hpp"

#include "base/base64.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/address.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <tutti/detail/stop_scope.hpp>
#include <utility>

namespace tutti::bootstrap {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using nlohmann::json;
using namespace std::chrono_literals;

namespace {

constexpr std::string_view plain_head = "etcd://", tls_head = "etcds://";
constexpr std::uint16_t usual_port = 2379;
constexpr std::size_t longest_answer = std::size_t{16} << 20;

[[noreturn]] void refuse_url(const std::string& url, std::string_view why) {
  base::throw_error(
      errc::invalid_argument,
      "'{}' {}: write etcd://host:port[,host:port...]/JOB, with the client addresses of the cluster's "
      "members (an IPv6 address in brackets) and a name of the job",
      url, why);
}

etcd_member parse_member(const std::string& url, std::string_view text) {
  etcd_member made{std::string(text), usual_port};
  const std::size_t colon = text.rfind(':');
  if (colon != text.npos && text.find(']', colon) == text.npos) {
    const auto port = base::to_number<std::uint16_t>(text.substr(colon + 1));
    if (port.value_or(0) == 0)
      refuse_url(url, fmt::format("has '{}', which is no port", text.substr(colon + 1)));
    made = {std::string(text.substr(0, colon)), *port};
  }
  std::string& host = made.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.empty() || host.find_first_of("[]:/@? ") != host.npos) {
    refuse_url(url, fmt::format("has '{}', which is no host", host));
  }
  return made;
}

// An error of etcd, which the gateway has put into JSON.
[[noreturn]] void throw_refusal(int code, const std::string& text, const std::string& at) {
  // gRPC's numbers.
  constexpr int deadline_exceeded = 4, permission_denied = 7, unavailable = 14, unauthenticated = 16;
  const auto says = [&text](std::string_view part) { return text.find(part) != text.npos; };
  if (says("lease not found")) throw lease_expired(errc::peer_failed, text);
  if (says("database space exceeded"))
    base::throw_error(
        errc::resources,
        "the etcd at {} has no space ({}): free it with etcdctl compact, etcdctl defrag and etcdctl "
        "alarm disarm, or raise its --quota-backend-bytes",
        at, text);
  if (says("too large"))
    base::throw_error(
        errc::resources,
        "the etcd at {} takes no request of this size ({}): spread the value over several keys, or "
        "raise etcd's --max-request-bytes",
        at, text);
  if (code == permission_denied || code == unauthenticated || says("user name is empty"))
    base::throw_error(
        errc::unauthorized,
        "the etcd at {} asks for a user ({}), and tutti has none: use one without users (etcdctl auth "
        "disable) that only the job's hosts can reach, or one that asks for certificates (etcds://)",
        at, text);
  const bool passes = code == unavailable || code == deadline_exceeded || says("too many requests");
  base::throw_error(passes ? errc::peer_failed : errc::protocol, "the etcd at {} answers: {}", at, text);
}

[[noreturn]] void throw_no_etcd(const std::string& at, std::string_view what) {
  base::throw_error(
      errc::protocol,
      "what listens at {} is no etcd of version 3.4 or later with its JSON gateway ({}): give the "
      "client address of etcd (etcdctl member list shows it; port 2379 as a rule)",
      at, what);
}

[[noreturn]] void throw_strange(const std::string& title, const std::string& at, const json::exception& e) {
  base::throw_error(errc::protocol, "{}: what listens at {} does not answer as etcd does: {}", title, at,
                    e.what());
}

// The object in the answer, or an error of it.
json parse_answer(int status, const std::string& body, const std::string& at) {
  json answer = json::parse(body, nullptr, false);
  if (answer.is_object() && answer.contains("error") && answer["error"].is_object())
    answer = json(answer["error"]);  // of a stream
  if (answer.is_object() && status == 200 && !answer.contains("grpc_code")) return answer;
  if (answer.is_object()) {
    std::string text;
    for (const char* name : {"error", "message"})
      if (answer.contains(name) && answer[name].is_string()) text = answer[name];
    int code = 0;
    for (const char* name : {"code", "grpc_code"})
      if (answer.contains(name) && answer[name].is_number_integer()) code = answer[name];
    if (!text.empty() && (code != 0 || status == 503)) throw_refusal(code, text, at);
  }
  // A proxy in front of members that have gone.
  if (status >= 502 && status <= 504)
    base::throw_error(errc::peer_failed, "{} answers with HTTP status {}", at, status);
  throw_no_etcd(at, fmt::format("HTTP status {}", status));
}

// The system notices that a member's host has gone while nothing is sent.
void notice_death(core::stream_socket& socket) {
  const auto set = [fd = socket.native_handle()](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// Whether another member, or the same one later, may do better.
bool may_pass(const error& e) {
  return e.code() == errc::peer_failed || e.code() == errc::timed_out || e.code() == errc::system;
}

}  // namespace

bool is_etcd_url(std::string_view text) noexcept {
  return text.starts_with(plain_head) || text.starts_with(tls_head);
}

etcd_place parse_etcd_url(const std::string& url) {
  if (!is_etcd_url(url)) refuse_url(url, "is no place in etcd");
  etcd_place made;
  made.tls = url.starts_with(tls_head);
  std::string_view rest = std::string_view(url).substr((made.tls ? tls_head : plain_head).size());
  const std::size_t slash = rest.find('/');
  if (slash == rest.npos || slash + 1 == rest.size()) refuse_url(url, "names no job");
  made.job = rest.substr(slash + 1);
  if (made.job.ends_with('/')) refuse_url(url, "has a slash at its end");
  rest = rest.substr(0, slash);
  while (true) {
    const std::size_t comma = rest.find(',');
    made.members.push_back(parse_member(url, rest.substr(0, comma)));
    if (comma == rest.npos) return made;
    rest.remove_prefix(comma + 1);
  }
}

struct etcd_client::answer_parser : http::response_parser<http::string_body> {
  explicit answer_parser(bool is_stream) {
    eager(true);
    if (is_stream) {
      body_limit(boost::none);
    } else {
      body_limit(longest_answer);
    }
  }
  int status() const { return static_cast<int>(get().result_int()); }
};

etcd_client::etcd_client(asio::any_io_executor executor, std::vector<etcd_member> members, tls_identity tls)
    : executor_(std::move(executor)), members_(std::move(members)), tls_(std::move(tls)) {}

std::string etcd_client::address_of(std::size_t member) const {
  return host_and_port(members_[member].host, members_[member].port);
}

core::time_point etcd_client::limit_of_attempt(core::time_point deadline) const {
  return std::min(deadline, core::deadline_after(members_.size() == 1 ? 20s : 3s));
}

void etcd_client::leave(std::size_t member) {
  if (member != current_) return;  // another request has left it already
  current_ = (current_ + 1) % members_.size();
  idle_.clear();
}

void etcd_client::check_cluster(const json& answer, std::size_t member) {
  // Answers in a stream are one level deeper.
  const json header = answer.value("result", answer).value("header", json::object());
  const std::string id = header.value("cluster_id", "");
  if (id.empty()) throw_no_etcd(address_of(member), "its answer names no cluster");
  if (cluster_.empty()) cluster_ = id;
  if (cluster_ != id)
    base::throw_error(
        errc::invalid_argument,
        "the etcd at {} belongs to another cluster (id {}) than the one that answered first (id {}): "
        "name members of one cluster only",
        address_of(member), id, cluster_);
}

task<etcd_client::connection> etcd_client::connect(std::size_t member, core::time_point deadline) {
  const etcd_member& at = members_[member];
  // A host that is not known now is one that has gone.
  const name_answer known = co_await ask_system(executor_, at.host, at.port, deadline);
  const errc how = known.code == asio::error::timed_out ? errc::timed_out : errc::peer_failed;
  std::string why = fmt::format("no address of '{}': {}", at.host, known.code.message());
  for (const asio::ip::tcp::endpoint& address : known.found) {
    try {
      core::stream_socket socket = co_await core::connect(executor_, address, deadline);
      connection made{std::move(socket), {}};
      notice_death(made.socket);
      if (tls_) {
        made.socket.secure_with(tls_);
        co_await core::start_tls(made.socket, core::tls_session::side::connecting, deadline);
      }
      co_return std::move(made);
    } catch (const error& e) {
      if (!may_pass(e) || core::clock::now() >= deadline) throw;
      why = e.what();
    }
  }
  throw error(how, why);
}

task<> etcd_client::send(connection& to, std::string path, const std::string& body,
                         core::time_point deadline) {
  // A member that has lost the others then says so at once, and ends its watches.
  std::string text = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nGrpc-Metadata-hasleader: true\r\n"
      "Content-Length: {}\r\n\r\n",
      path, address_of(current_), body.size());
  text += body;
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  co_await core::write_all(to.socket, bytes, deadline);
}

// Returns when more of the answer is in the parser.
task<> etcd_client::receive(connection& from, answer_parser& parser, core::time_point deadline) {
  std::vector<std::uint8_t> bytes(std::size_t{16} << 10);
  for (;;) {
    boost::system::error_code failed;
    if (!from.read.empty()) {
      const std::size_t used = parser.put(asio::buffer(from.read), failed);
      from.read.erase(0, used);
      if (failed && failed != http::error::need_more)
        throw_no_etcd(core::peer_text(from.socket), failed.message());
      if (used > 0 || parser.is_done()) co_return;
    }
    const std::size_t got = co_await core::read_some(from.socket, bytes, deadline);
    from.read.append(reinterpret_cast<const char*>(bytes.data()), got);
    if (got > 0) continue;
    if (parser.got_some()) parser.put_eof(failed);
    if (!parser.got_some() || failed)
      base::throw_error(errc::peer_failed, "{} closed the connection before its answer was complete",
                        core::peer_text(from.socket));
    co_return;
  }
}

task<json> etcd_client::ask(std::size_t member, std::string path, std::string body,
                            core::time_point deadline) {
  for (;;) {
    const bool reuses = member == current_ && !idle_.empty();
    std::optional<connection> link;
    if (reuses) {
      link.emplace(std::move(idle_.back()));
      idle_.pop_back();
    } else {
      link.emplace(co_await connect(member, deadline));
    }
    answer_parser parser(false);
    try {
      co_await send(*link, path, body, deadline);
      while (!parser.is_done()) co_await receive(*link, parser, deadline);
    } catch (const error& e) {
      if (!reuses || e.code() != errc::peer_failed) throw;
      continue;  // the member has closed it meanwhile, as by a restart
    }
    json answer = parse_answer(parser.status(), parser.get().body(), address_of(member));
    check_cluster(answer, member);
    if (member == current_ && parser.keep_alive()) idle_.push_back(std::move(*link));
    co_return std::move(answer);
  }
}

task<json> etcd_client::call(std::string path, json request, core::time_point deadline, std::string title) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  const std::string body = request.dump();
  const core::time_point begin = core::clock::now();
  core::wakeup pause(executor_);
  std::chrono::milliseconds rest = 10ms;
  std::string trouble;
  for (std::size_t attempt = 1;; ++attempt) {
    const std::size_t member = current_;
    try {
      co_return co_await ask(member, path, body, limit_of_attempt(deadline));
    } catch (const lease_expired&) {
      throw;
    } catch (const error& e) {
      self->throw_if_stopped(title);
      if (!may_pass(e)) base::throw_error(static_cast<errc>(e.code().value()), "{}: {}", title, e.what());
      // That time is over says less than what went wrong before.
      if (trouble.empty() || e.code() != errc::timed_out) trouble = e.what();
    } catch (const json::exception& e) {
      throw_strange(title, address_of(member), e);
    }
    leave(member);
    if (core::clock::now() >= deadline)
      base::throw_error(
          errc::timed_out,
          "{}: no etcd has answered within {} ({}); see that it runs, has a leader and can be reached "
          "from here (etcdctl --endpoints={} endpoint health)",
          title, base::duration_text(core::time_left(deadline, begin)), trouble, address_of(member));
    if (attempt % members_.size() != 0) continue;
    co_await pause.wait(std::min(deadline, core::deadline_after(rest)), title);
    rest = std::min<std::chrono::milliseconds>(2 * rest, 500ms);
  }
}

task<std::optional<std::string>> etcd_client::follow(std::size_t member, std::string body,
                                                     core::time_point until) {
  connection link = co_await connect(member, limit_of_attempt(until));
  co_await send(link, "/v3/watch", body, until);
  answer_parser parser(true);
  std::string text;
  while (!parser.is_done()) {
    co_await receive(link, parser, until);
    if (!parser.is_header_done()) continue;
    std::string& body_so_far = parser.get().body();
    text += body_so_far;
    body_so_far.clear();
    if (parser.status() != 200 && !parser.is_done()) continue;
    if (parser.status() != 200) parse_answer(parser.status(), text, address_of(member));
    if (text.size() > longest_answer) throw_no_etcd(address_of(member), "a line of a stream without end");
    for (std::size_t end; (end = text.find('\n')) != text.npos; text.erase(0, end + 1)) {
      const json line = parse_answer(200, text.substr(0, end), address_of(member));
      const json result = line.value("result", json::object());
      if (!result.is_object() || result.value("canceled", false)) co_return std::nullopt;
      check_cluster(result, member);
      for (const json& event : result.value("events", json::array())) {
        std::optional<std::string> value =
            base::from_base64(event.value("kv", json::object()).value("value", ""));
        if (!value) throw_no_etcd(address_of(member), "a value that is no base64");
        co_return std::move(value);
      }
    }
  }
  co_return std::nullopt;
}

task<std::optional<std::string>> etcd_client::watch(std::string key, std::int64_t revision,
                                                    core::time_point until, std::string title) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  json create = json::object();
  create["key"] = base::to_base64(key);
  create["start_revision"] = std::to_string(revision);
  create["filters"] = json::array({"NODELETE"});
  json request = json::object();
  request["create_request"] = std::move(create);
  const std::size_t member = current_;
  try {
    co_return co_await follow(member, request.dump(), until);
  } catch (const error& e) {
    self->throw_if_stopped(title);
    if (!may_pass(e)) base::throw_error(static_cast<errc>(e.code().value()), "{}: {}", title, e.what());
  } catch (const json::exception& e) {
    throw_strange(title, address_of(member), e);
  }
  const core::time_point now = core::clock::now();
  if (now >= until) co_return std::nullopt;
  leave(member);
  core::wakeup pause(executor_);
  co_await pause.wait(std::min(until, now + 50ms), title);
  co_return std::nullopt;
}

}  // namespace tutti::bootstrap
