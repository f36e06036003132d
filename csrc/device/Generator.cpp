#include "csrc/device/Generator.h"

#include <ATen/Functions.h>
#include <ATen/Utils.h>

#include <array>
#include <cstring>

#include "csrc/device/Guard.h"
#include "csrc/device/MemoryStats.h"

namespace tpu {

namespace {

// Offsets move in steps of four, the unit in which torch.distributed.tensor divides a Philox stream among shards.
constexpr uint64_t kOffsetStep = 4;
constexpr size_t kStateBytes = 16;

} // namespace

TpuGeneratorImpl::TpuGeneratorImpl(c10::DeviceIndex device)
    : GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                    c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::make_shared<Philox>(Philox{c10::default_rng_seed_val, 0})) {}

void TpuGeneratorImpl::set_current_seed(uint64_t seed) {
  *state_ = {seed, 0};
}
uint64_t TpuGeneratorImpl::current_seed() const {
  return state_->seed;
}
uint64_t TpuGeneratorImpl::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return state_->seed;
}
void TpuGeneratorImpl::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % kOffsetStep == 0, "The offset of a tpu generator must be a multiple of 4, got ", offset, ".");
  state_->offset = offset;
}
uint64_t TpuGeneratorImpl::get_offset() const {
  return state_->offset;
}

void TpuGeneratorImpl::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == static_cast<int64_t>(kStateBytes),
              "Expected a tpu generator state of 16 bytes (seed, offset), got ", state.numel(), " bytes.");
  std::array<uint64_t, 2> words;
  std::memcpy(words.data(), state.data_dtype_initialized<uint8_t>(), kStateBytes);
  set_offset(words[1]); // checks it, so that a wrong state changes nothing
  state_->seed = words[0];
}

c10::intrusive_ptr<c10::TensorImpl> TpuGeneratorImpl::get_state() const {
  at::Tensor state =
      at::empty({static_cast<int64_t>(kStateBytes)}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  const std::array<uint64_t, 2> words{state_->seed, state_->offset};
  std::memcpy(state.mutable_data_ptr(), words.data(), kStateBytes);
  return state.getIntrusivePtr();
}

void TpuGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  auto* other = dynamic_cast<TpuGeneratorImpl*>(state.get());
  TORCH_CHECK(other != nullptr, "Expected the state of a tpu generator.");
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> TpuGeneratorImpl::graphsafe_get_state() const {
  auto copy = c10::make_intrusive<TpuGeneratorImpl>(device().index());
  copy->state_ = state_;
  return copy;
}

std::pair<uint64_t, uint64_t> TpuGeneratorImpl::draw() {
  std::pair<uint64_t, uint64_t> result{state_->seed, state_->offset};
  state_->offset += kOffsetStep;
  return result;
}

TpuGeneratorImpl* TpuGeneratorImpl::clone_impl() const {
  auto* copy = new TpuGeneratorImpl(device().index());
  *copy->state_ = *state_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* generators = [] {
    auto* all = new std::vector<at::Generator>();
    for (int index = 0; index < MemoryStats::kMaxDevices; ++index) {
      all->push_back(at::make_generator<TpuGeneratorImpl>(static_cast<c10::DeviceIndex>(index)));
    }
    return all;
  }();
  return (*generators)[resolve_device(c10::Device(c10::DeviceType::PrivateUse1, device))];
}

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<TpuGeneratorImpl>(resolve_device(c10::Device(c10::DeviceType::PrivateUse1, device)));
}

} // namespace tpu
