// The 128-bit key of a recorded program, built word by word. Equal across processes, because only contents are mixed
// in.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace tpu {

struct Hash128 {
  uint64_t high = 0x9e3779b97f4a7c15ULL;
  uint64_t low = 0xc2b2ae3d27d4eb4fULL;

  void mix(uint64_t word) {
    high = (high ^ word) * 0xff51afd7ed558ccdULL;
    high ^= high >> 29;
    low = (low + word) * 0x9fb21c651e98df25ULL;
    low = (low << 27 | low >> 37) ^ high;
  }
  void mix(const Hash128& other) {
    mix(other.high);
    mix(other.low);
  }
  bool operator==(const Hash128& other) const { return high == other.high && low == other.low; }
};

inline uint64_t hash_text(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325ULL; // FNV-1a, 64 bits
  for (unsigned char byte : text) {
    value = (value ^ byte) * 0x100000001b3ULL;
  }
  return value;
}

} // namespace tpu

template <>
struct std::hash<tpu::Hash128> {
  size_t operator()(const tpu::Hash128& key) const noexcept { return static_cast<size_t>(key.high ^ (key.low * 31)); }
};
