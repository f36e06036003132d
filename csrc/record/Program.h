// The program being recorded: nodes, where their inputs come from, and which buffers their outputs belong to.
#pragma once

#include <c10/util/complex.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/device/Hash.h"
#include "csrc/record/Buffer.h"
#include "csrc/record/Signature.h"

namespace tpu {

// Where a node's input comes from: an output of an earlier node, an array from outside, or nothing (zeros).
struct Ref {
  enum Kind : uint32_t { kValue = 0, kInput = 1, kNothing = 2 };
  uint32_t kind : 2;
  uint32_t index : 30;
};

struct Node {
  Signature* signature;
  uint32_t first_ref;   // one per buffer of the call
  uint32_t first_value; // outputs first, then mutations
  uint32_t first_use;   // of run-time numbers
  uint32_t draw;        // of random numbers
  bool recomputed;      // forward work repeated inside a backward pass (activation checkpointing)
  bool abstract;        // has no value: recorded under torchtpu.abstract(), or reads something that was
};

// Where a call was made.
struct Circumstances {
  bool recomputing; // inside a backward pass, with gradients on
  bool abstract;    // inside torchtpu.abstract()
  bool inference;   // gradients off, outside of backward passes and optimizers: a loop shows by its repetition
};

struct Value {
  TpuBuffer* buffer; // whose value this was made to be
  const Desc* desc;
  uint32_t node;
  bool consumed;
};

struct Input {
  Array array;
  const Desc* desc;
};

struct SlotRef {
  SlotClass group;
  uint32_t index;
};

struct Restore {
  TpuBuffer* buffer;
  uint32_t input; // kNoInput: the buffer was empty
};
constexpr uint32_t kNoInput = UINT32_MAX;

struct Issuer;

class Program {
 public:
  explicit Program(c10::DeviceIndex device);
  Program(const Program&) = delete;
  ~Program(); // members are released here; without recorder_lock() held

  // Appends a node for the call. Fills `fresh` with the buffers of new outputs, each with one reference for the caller.
  void append(const Call& call, Signature& signature, Circumstances at, std::vector<TpuBuffer*>& fresh);
  bool empty() const { return nodes.empty(); }
  bool repeats() const; // its newest suffix equals the one before it

  // After a failure: mutated buffers regain their values, except where input `i` is lost; buffers never computed are
  // poisoned.
  void fail(const std::shared_ptr<const std::string>& error, const std::vector<bool>& lost);

  uint64_t serial;
  c10::DeviceIndex device;
  bool abstract = false;    // some nodes have no value: those can be compiled, not run
  bool fills = false;       // holds only fills, see Recorder
  bool refused = false;     // a limit on compiles kept it from running: it is as it was, and waits again
  Issuer* issuer = nullptr; // who records; may be gone
  std::vector<Node> nodes;
  std::vector<Ref> refs;
  std::vector<Value> values;
  std::vector<Input> inputs;
  std::vector<TpuBuffer*> members; // one reference each
  std::vector<Restore> restores;
  std::vector<SlotRef> uses;
  std::array<std::vector<c10::complex<double>>, kNumSlotClasses> slots;
  std::vector<int64_t> integers; // values of the kInt64 slots
  std::vector<std::pair<uint64_t, uint64_t>> draws;
  Hash128 structure; // of nodes and their wiring
  Hash128 pattern;   // of the sharing of slots

  // While another thread runs the program, buffers of it must be waited for.
  bool running = false;
  uint64_t running_thread = 0;

 private:
  Ref input_ref(TpuBuffer* buffer);
  uint32_t new_value(TpuBuffer* buffer, const Desc* desc);
  void adopt(TpuBuffer* buffer);
  void use_slots(const Call& call, const Signature& signature);
  void note_node(const Call& call, const Signature& signature);

  struct SlotKey {
    uint64_t op;
    uint64_t arg;
    uint64_t bits;
    uint64_t imaginary;
    bool operator==(const SlotKey& other) const {
      return op == other.op && arg == other.arg && bits == other.bits && imaginary == other.imaginary;
    }
  };
  struct SlotKeyHash {
    size_t operator()(const SlotKey& key) const {
      return (key.op * 31 + key.arg) * 0x9e3779b97f4a7c15ULL ^ (key.bits * 0xff51afd7ed558ccdULL) ^ key.imaginary;
    }
  };
  std::unordered_map<SlotKey, uint32_t, SlotKeyHash> shared_slots_;

  // Prefix hashes of the nodes, to find repetitions (only kept while gradients are off).
  std::vector<uint64_t> prefix_;
  std::unordered_map<uint64_t, uint32_t> last_seen_;
  bool is_parameter(const TpuBuffer& buffer) const;
  uint64_t birth_; // buffers older than this existed before the program
  bool repeats_ = false;
};

} // namespace tpu
