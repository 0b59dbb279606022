// SPDX-License-Identifier: Apache-2.0
// Authorities and certificates in PEM files for tests of TLS, if OpenSSL is installed.
#pragma once

#ifdef TUTTI_HAVE_TLS

#include <doctest/doctest.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <string>

namespace tutti::test {

class authority {
 public:
  // Writes `directory`/`name`.pem, and issued certificates beside it.
  authority(std::string directory, const std::string& name)
      : directory_(std::move(directory)), key_(EVP_EC_gen("P-256")) {
    certificate_ = make(key_, name, "critical,CA:TRUE", "", 0, 365);
    sign(certificate_, certificate_);
    file_ = write_certificate(name, certificate_);
  }
  authority(const authority&) = delete;
  authority& operator=(const authority&) = delete;
  ~authority() {
    ::X509_free(certificate_);
    ::EVP_PKEY_free(key_);
  }
  const std::string& file() const { return file_; }

  struct issued {
    std::string certificate;
    std::string key;
  };
  // `names`: as in "URI:tutti:rank:3". Valid from `from` to `to`, in days from today.
  issued issue(const std::string& name, const std::string& names = {}, int from = -1, int to = 30) const {
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    X509* const made = make(key, name, "CA:FALSE", names, from, to);
    sign(made, certificate_);
    issued files{write_certificate(name, made), directory_ + "/" + name + ".key"};
    std::FILE* const out = std::fopen(files.key.c_str(), "w");
    REQUIRE(out != nullptr);
    CHECK(::PEM_write_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
    std::fclose(out);
    ::X509_free(made);
    ::EVP_PKEY_free(key);
    return files;
  }

 private:
  static X509* make(EVP_PKEY* key, const std::string& name, const char* constraints, const std::string& names,
                    int from, int to) {
    static long serial = 1;
    X509* const c = ::X509_new();
    ::X509_set_version(c, 2);
    ::ASN1_INTEGER_set(::X509_get_serialNumber(c), ++serial);
    constexpr long day = 24 * 60 * 60;
    ::X509_gmtime_adj(::X509_getm_notBefore(c), from * day);
    ::X509_gmtime_adj(::X509_getm_notAfter(c), to * day);
    ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(c), "CN", MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    ::X509_set_pubkey(c, key);
    extend(c, NID_basic_constraints, constraints);
    if (!names.empty()) extend(c, NID_subject_alt_name, names.c_str());
    return c;
  }
  static void extend(X509* c, int what, const char* value) {
    X509_EXTENSION* const e = ::X509V3_EXT_conf_nid(nullptr, nullptr, what, value);
    REQUIRE(e != nullptr);
    ::X509_add_ext(c, e, -1);
    ::X509_EXTENSION_free(e);
  }
  void sign(X509* c, X509* by) const {
    ::X509_set_issuer_name(c, ::X509_get_subject_name(by));
    CHECK(::X509_sign(c, key_, ::EVP_sha256()) > 0);
  }
  std::string write_certificate(const std::string& name, X509* c) const {
    std::string path = directory_ + "/" + name + ".pem";
    std::FILE* const out = std::fopen(path.c_str(), "w");
    REQUIRE(out != nullptr);
    CHECK(::PEM_write_X509(out, c) == 1);
    std::fclose(out);
    return path;
  }

  const std::string directory_;
  EVP_PKEY* key_;
  X509* certificate_;
  std::string file_;
};

}  // namespace tutti::test

#endif
