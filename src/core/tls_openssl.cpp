// SPDX-License-Identifier: Apache-2.0
// TLS by OpenSSL, as a module of its own: the rest of tutti is not linked with it, nor it with the rest.
#include "core/tls.hpp"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::core {
namespace {

constexpr std::size_t record_bytes = 16 * 1024;
// Encrypted before the kernel has been asked whether it has room.
constexpr std::size_t ahead_bytes = 4 * record_bytes;
constexpr std::size_t read_ahead_bytes = 64 * 1024;
constexpr long longest_certificates = 16 * 1024;
constexpr std::string_view exporter_label = "EXPORTER-tutti-binding";
constexpr std::string_view rank_uri = "tutti:rank:";

template <class T, void (*Free)(T*)>
struct freed {
  void operator()(T* object) const noexcept { Free(object); }
};
using x509_ptr = std::unique_ptr<X509, freed<X509, ::X509_free>>;
using key_ptr = std::unique_ptr<EVP_PKEY, freed<EVP_PKEY, ::EVP_PKEY_free>>;
using names_ptr = std::unique_ptr<GENERAL_NAMES, freed<GENERAL_NAMES, ::GENERAL_NAMES_free>>;

std::string last_complaint(const char* otherwise) {
  std::string text;
  while (const unsigned long code = ::ERR_get_error()) {
    const char* const reason = ::ERR_reason_error_string(code);
    if (reason == nullptr || text.find(reason) != std::string::npos) continue;
    if (!text.empty()) text += ", ";
    text += reason;
  }
  return text.empty() ? std::string(otherwise) : text;
}

[[noreturn]] void refuse_openssl(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + last_complaint("OpenSSL does not say why"));
}

// This certificate authenticates nobody: the proof of the secret, which is bound to the session, does.
void use_own_certificate(SSL_CTX* context) {
  const key_ptr key(EVP_EC_gen("P-256"));
  const x509_ptr certificate(::X509_new());
  if (!key || !certificate) refuse_openssl("no key could be made");
  ::X509_set_version(certificate.get(), 2);
  ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate.get()), 1);
  constexpr long day = 24 * 60 * 60;
  ::X509_gmtime_adj(::X509_getm_notBefore(certificate.get()), -day);
  ::X509_gmtime_adj(::X509_getm_notAfter(certificate.get()), 3650 * day);
  X509_NAME* const name = ::X509_get_subject_name(certificate.get());
  ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("tutti"), -1,
                               -1, 0);
  ::X509_set_issuer_name(certificate.get(), name);
  ::X509_set_pubkey(certificate.get(), key.get());
  if (::X509_sign(certificate.get(), key.get(), ::EVP_sha256()) == 0 ||
      ::SSL_CTX_use_certificate(context, certificate.get()) != 1 ||
      ::SSL_CTX_use_PrivateKey(context, key.get()) != 1)
    refuse_openssl("no certificate could be made");
}

void use_files(SSL_CTX* context, const std::string& certificate, const std::string& key,
               const std::string& authority) {
  ::ERR_clear_error();
  if (::SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1)
    throw std::invalid_argument(
        "TUTTI_TLS_CERTIFICATE (init_options::tls_certificate) '" + certificate +
        "' is no certificate in PEM that this process can read: " + last_complaint("it is empty"));
  if (::SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1)
    throw std::invalid_argument(
        "TUTTI_TLS_KEY (init_options::tls_key) '" + key +
        "' is no key in PEM, without a passphrase, that this process can read and that belongs to the "
        "certificate '" +
        certificate + "': " + last_complaint("it is empty"));
  if (::SSL_CTX_load_verify_file(context, authority.c_str()) != 1)
    throw std::invalid_argument(
        "TUTTI_TLS_AUTHORITY (init_options::tls_authority) '" + authority +
        "' has no certificate in PEM that this process can read: " + last_complaint("it is empty"));
}

int accept_any(int, X509_STORE_CTX*) { return 1; }

using context_ptr = std::unique_ptr<SSL_CTX, freed<SSL_CTX, ::SSL_CTX_free>>;

context_ptr make_context(const std::string& certificate, const std::string& key,
                         const std::string& authority) {
  context_ptr made(::SSL_CTX_new(::TLS_method()));
  if (!made) refuse_openssl("OpenSSL has no TLS");
  SSL_CTX* const context = made.get();
  ::SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  // Every connection proves everything anew.
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_num_tickets(context, 0);
  ::SSL_CTX_set_max_cert_list(context, longest_certificates);
  ::SSL_CTX_set_read_ahead(context, 1);
  ::SSL_CTX_set_default_read_buffer_len(context, read_ahead_bytes);
  // The end without TLS's own farewell is an ordinary one: frames have a farewell that says more.
  ::SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  const bool checks = !authority.empty();
  if (checks) {
    use_files(context, certificate, key, authority);
  } else {
    use_own_certificate(context);
  }
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       checks ? nullptr : &accept_any);
  return made;
}

class openssl_context final : public tls_context {
 public:
  openssl_context(context_ptr native, bool checks) : native_(std::move(native)), checks_(checks) {}
  std::unique_ptr<tls_session> open(int fd, tls_session::side s) const override;
  SSL_CTX* native() const noexcept { return native_.get(); }
  // Whether the other side's certificate must lead to an authority.
  bool checks_certificates() const noexcept { return checks_; }

 private:
  context_ptr native_;
  const bool checks_;
};

class openssl_session final : public tls_session {
 public:
  openssl_session(std::shared_ptr<const openssl_context> identity, int fd, side s);
  ~openssl_session() override;

  step shake_hands() override;
  bool bind(binding_bytes& value) const noexcept override;
  bool allows_rank(std::int32_t rank) const override;
  const std::string& complaint() const noexcept override { return complaint_; }
  ssize_t read(iovec* parts, std::size_t count) noexcept override;
  ssize_t write(const iovec* parts, std::size_t count) noexcept override;
  int flush() noexcept override;
  bool flushed() const noexcept override { return sent_ == out_.size(); }

 private:
  ssize_t read_some(void* into, std::size_t bytes) noexcept;
  bool encrypt(const void* from, std::size_t bytes) noexcept;
  void note_complaint(int why);

  const std::shared_ptr<const openssl_context> identity_;
  SSL* ssl_ = nullptr;
  const int fd_;
  int socket_error_ = 0;
  std::vector<std::uint8_t> out_;       // encrypted
  std::size_t sent_ = 0;                // sent part of it
  std::vector<std::uint8_t> gathered_;  // short parts of write() together
  std::string complaint_;
};

// Where OpenSSL writes to: the memory of a session.
BIO_METHOD* output_method() {
  static BIO_METHOD* const made = [] {
    BIO_METHOD* const m = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti");
    if (m == nullptr) throw std::bad_alloc();
    ::BIO_meth_set_write_ex(m,
                            [](BIO* bio, const char* from, std::size_t bytes, std::size_t* taken) noexcept {
                              auto& out = *static_cast<std::vector<std::uint8_t>*>(::BIO_get_data(bio));
                              out.insert(out.end(), from, from + bytes);
                              *taken = bytes;
                              return 1;
                            });
    ::BIO_meth_set_ctrl(
        m, [](BIO*, int what, long, void*) noexcept { return what == BIO_CTRL_FLUSH ? 1L : 0L; });
    return m;
  }();
  return made;
}

openssl_session::openssl_session(std::shared_ptr<const openssl_context> identity, int fd, side s)
    : identity_(std::move(identity)), fd_(fd) {
  out_.reserve(ahead_bytes + record_bytes);
  gathered_.reserve(record_bytes);
  ::BIO_socket_nbio(fd, 1);
  BIO* const in = ::BIO_new_socket(fd, BIO_NOCLOSE);
  BIO* const out = ::BIO_new(output_method());
  ssl_ = ::SSL_new(identity_->native());
  if (ssl_ == nullptr || in == nullptr || out == nullptr) {
    ::BIO_free(in);
    ::BIO_free(out);
    ::SSL_free(ssl_);
    throw std::bad_alloc();
  }
  ::BIO_set_data(out, &out_);
  ::BIO_set_init(out, 1);
  ::SSL_set_bio(ssl_, in, out);
  if (s == side::connecting) {
    ::SSL_set_connect_state(ssl_);
  } else {
    ::SSL_set_accept_state(ssl_);
  }
}

openssl_session::~openssl_session() { ::SSL_free(ssl_); }

// `why` as of SSL_get_error().
void openssl_session::note_complaint(int why) {
  if (!complaint_.empty()) return;
  const long verdict = ::SSL_get_verify_result(ssl_);
  if (identity_->checks_certificates() && verdict != X509_V_OK) {
    complaint_ =
        std::string("its certificate is not accepted here: ") + ::X509_verify_cert_error_string(verdict);
  } else if (why != SSL_ERROR_SSL) {
    complaint_ = "it ended the connection";
  } else {
    complaint_ = last_complaint("the protocol was broken");
  }
  ::ERR_clear_error();
}

tls_session::step openssl_session::shake_hands() {
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(ssl_);
  const int why = result == 1 ? SSL_ERROR_NONE : ::SSL_get_error(ssl_, result);
  if (result != 1 && why != SSL_ERROR_WANT_READ) note_complaint(why);
  if (flush() != 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return step::wait_to_write;
    return why == SSL_ERROR_SSL ? step::failed : step::ended;
  }
  if (result == 1) return step::done;
  if (why == SSL_ERROR_WANT_READ) return step::wait_to_read;
  return why == SSL_ERROR_SSL ? step::failed : step::ended;
}

bool openssl_session::bind(binding_bytes& value) const noexcept {
  return ::SSL_export_keying_material(ssl_, value.data(), value.size(), exporter_label.data(),
                                      exporter_label.size(), nullptr, 0, 0) == 1;
}

bool openssl_session::allows_rank(std::int32_t rank) const {
  if (!identity_->checks_certificates()) return true;
  const x509_ptr certificate(::SSL_get1_peer_certificate(ssl_));
  if (!certificate) return false;
  const names_ptr names(static_cast<GENERAL_NAMES*>(
      ::X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  if (!names) return true;
  const std::string wanted = std::string(rank_uri) + std::to_string(rank);
  bool names_ranks = false;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const std::string_view uri(
        reinterpret_cast<const char*>(::ASN1_STRING_get0_data(name->d.uniformResourceIdentifier)),
        static_cast<std::size_t>(::ASN1_STRING_length(name->d.uniformResourceIdentifier)));
    if (!uri.starts_with(rank_uri)) continue;
    if (uri == wanted) return true;
    names_ranks = true;
  }
  return !names_ranks;
}

ssize_t openssl_session::read_some(void* into, std::size_t bytes) noexcept {
  ::ERR_clear_error();
  std::size_t got = 0;
  if (::SSL_read_ex(ssl_, into, bytes, &got) == 1) return static_cast<ssize_t>(got);
  const int why = ::SSL_get_error(ssl_, 0);
  if (why == SSL_ERROR_ZERO_RETURN) return 0;
  if (why == SSL_ERROR_SYSCALL && socket_error_ == 0) socket_error_ = errno;
  if (why == SSL_ERROR_SSL) note_complaint(why);
  if (why == SSL_ERROR_WANT_READ)
    errno = EAGAIN;
  else
    errno = socket_error_ != 0 ? socket_error_ : EBADMSG;
  return -1;
}

ssize_t openssl_session::read(iovec* parts, std::size_t count) noexcept {
  ssize_t all = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto* at = static_cast<std::uint8_t*>(parts[i].iov_base);
    for (std::size_t left = parts[i].iov_len; left > 0;) {
      const ssize_t got = read_some(at, left);
      // Data that have come are delivered first; the next call meets the end or the failure again.
      if (got <= 0) return all > 0 ? all : got;
      all += got;
      at += got;
      left -= static_cast<std::size_t>(got);
    }
  }
  return all;
}

bool openssl_session::encrypt(const void* from, std::size_t bytes) noexcept {
  if (bytes == 0) return true;
  ::ERR_clear_error();
  std::size_t written = 0;
  return ::SSL_write_ex(ssl_, from, bytes, &written) == 1;
}

ssize_t openssl_session::write(const iovec* parts, std::size_t count) noexcept {
  ssize_t taken = 0;
  std::size_t offset = 0;  // in the first of the remaining `parts`
  while (count > 0) {
    if (flush() != 0) return taken > 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? taken : -1;
    bool good = true;
    std::size_t encrypted = 0;
    while (good && count > 0 && encrypted < ahead_bytes) {
      const auto* const at = static_cast<const std::uint8_t*>(parts->iov_base) + offset;
      const std::size_t left = parts->iov_len - offset;
      const std::size_t room = record_bytes - gathered_.size();
      const std::size_t n = std::min(left, room);
      if (n == record_bytes) {
        good = encrypt(at, n);
      } else {
        gathered_.insert(gathered_.end(), at, at + n);
      }
      encrypted += n;
      taken += static_cast<ssize_t>(n);
      offset += n;
      if (offset == parts->iov_len) {
        ++parts;
        --count;
        offset = 0;
      }
      if (gathered_.size() < record_bytes) continue;
      good = encrypt(gathered_.data(), gathered_.size());
      gathered_.clear();
    }
    if (!good || !encrypt(gathered_.data(), gathered_.size())) {
      errno = socket_error_ != 0 ? socket_error_ : EBADMSG;
      return -1;
    }
    gathered_.clear();
  }
  // Data for which the kernel has no room leave with flush().
  if (flush() != 0 && errno != EAGAIN && errno != EWOULDBLOCK) return -1;
  return taken;
}

int openssl_session::flush() noexcept {
  while (sent_ < out_.size()) {
    const ssize_t n = ::send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      sent_ += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      return -1;
    }
  }
  out_.clear();
  sent_ = 0;
  return 0;
}

std::unique_ptr<tls_session> openssl_context::open(int fd, tls_session::side s) const {
  return std::make_unique<openssl_session>(
      std::static_pointer_cast<const openssl_context>(shared_from_this()), fd, s);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] tls_module_function tutti_tls_context_2;

tls_context* tutti_tls_context_2(const std::string& certificate, const std::string& key,
                                 const std::string& authority, std::string& why, bool& wrong) {
  try {
    return new openssl_context(make_context(certificate, key, authority), !authority.empty());
  } catch (const std::invalid_argument& e) {
    wrong = true;
    why = e.what();
  } catch (const std::exception& e) {
    why = e.what();
  }
  return nullptr;
}

}  // namespace tutti::core
