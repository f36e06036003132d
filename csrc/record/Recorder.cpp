#include "csrc/record/Recorder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include "csrc/device/Guard.h"
#include "csrc/device/Host.h"
#include "csrc/record/Lowering.h"
#include "csrc/record/Rehearsal.h"

namespace tpu {

namespace {

std::atomic<int> the_mode{0};
std::atomic<int64_t> max_nodes{16384};

bool in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

// Grad mode is on inside a backward pass that keeps no graph: activation checkpointing is recomputing forward work.
bool recomputing() {
  return at::GradMode::is_enabled() && !torch::autograd::get_current_graph_task_keep_graph();
}

// Asked inside a backward pass.
bool is_accumulating(const OpInfo& op) {
  static const uint64_t add = hash_text("aten::add_.Tensor");
  if (op.hash != add) {
    return false;
  }
  auto node = torch::autograd::get_current_node();
  return dynamic_cast<torch::autograd::AccumulateGrad*>(node.get()) != nullptr;
}

// The boundaries that depend on what is about to be recorded.
void cross_boundaries(Issuer& issuer) {
  if (issuer.step_done) {
    issuer.step_done = false;
    issuer.accumulated = false;
    flush(-1, "optimizer step");
  } else if (issuer.accumulated && at::GradMode::is_enabled()) {
    issuer.accumulated = false;
    flush(-1, "accumulated gradients");
  }
}

// `check_errors=True` asks for an error at once.
bool wants_rehearsal(const Call& call) {
  const int check_errors = call.op->check_errors_arg;
  const bool fits_cpu = !call.op->value_errors_of_floats || call.arg(0).toTensor().is_floating_point();
  return (call.op->value_errors && fits_cpu && eager_mode() == EagerMode::kDebug) ||
         (check_errors >= 0 && call.arg(check_errors).toBool());
}

at::Tensor new_tensor(const OutputMeta& meta, TpuBuffer* buffer) {
  return meta.contiguous ? make_contiguous_tensor(buffer, meta.dtype, meta.sizes)
                         : make_tensor(buffer, meta.dtype, meta.sizes, meta.strides);
}

c10::IValue make_return(const ReturnSpec& spec, const Call& call, const Signature& signature,
                        const std::vector<TpuBuffer*>& fresh) {
  switch (spec.kind) {
    case ReturnSpec::kNew:
      return new_tensor(signature.outputs[spec.index], fresh[spec.index]);
    case ReturnSpec::kArg:
      return call.arg(spec.index);
    case ReturnSpec::kInt:
      return spec.index;
    case ReturnSpec::kUndefined:
      return at::Tensor();
    case ReturnSpec::kNewList:
      break;
  }
  c10::List<at::Tensor> list;
  for (int64_t i = spec.index; i < spec.index + spec.count; ++i) {
    list.push_back(new_tensor(signature.outputs[i], fresh[i]));
  }
  return list;
}

void push_results(torch::jit::Stack* stack, const Call& call, const Signature& signature,
                  const std::vector<TpuBuffer*>& fresh) {
  if (signature.returns.size() == 1) { // nearly always: nothing to allocate
    c10::IValue result = make_return(signature.returns[0], call, signature, fresh);
    torch::jit::drop(*stack, call.op->args.size());
    stack->push_back(std::move(result));
    return;
  }
  std::vector<c10::IValue> results;
  results.reserve(signature.returns.size());
  for (const ReturnSpec& spec : signature.returns) {
    results.push_back(make_return(spec, call, signature, fresh));
  }
  torch::jit::drop(*stack, call.op->args.size());
  for (c10::IValue& result : results) {
    stack->push_back(std::move(result));
  }
}

// Operators on lists return nothing, and autograd marks only what is returned as changed. On the CPU each tensor of a
// list is written by an operator of its own; fused optimizers are not seen there either.
void bump_versions(const Call& call) {
  if (call.op->name.rfind("aten::_foreach_", 0) != 0) {
    return;
  }
  for (size_t index = 0; index < call.op->args.size(); ++index) {
    if (!call.op->args[index].written) {
      continue;
    }
    for (const c10::IValue& item : call.arg(index).toListRef()) {
      if (!item.toTensor().is_inference()) {
        item.toTensor().unsafeGetTensorImpl()->bump_version();
      }
    }
  }
}

void resize_outs(const Call& call, const Signature& signature) {
  for (const Resize& resize : signature.resizes) {
    const at::Tensor& out = call.arg(resize.arg).toTensor();
    at::native::resize_output(out, resize.sizes);
    out.unsafeGetTensorImpl()->set_sizes_and_strides(resize.sizes, resize.strides);
  }
}

void run_on_cpu(const Call& call) {
  struct Timed {
    Timed() = default;
    Timed(const Timed&) = delete;
    ~Timed() { lowering().end_fallback(); }
  };
  lowering().note_fallback(*call.op);
  const Timed timed;
  at::native::cpu_fallback(call.op->handle, call.stack);
}

// One call on its way into a program; calls nest when CPU indices are moved, so each depth has a scratch of its own.
class Recording {
 public:
  Recording(OpInfo& op, torch::jit::Stack* stack) {
    if (depth_ == pool_.size()) {
      pool_.push_back(std::make_unique<Scratch>());
    }
    scratch_ = pool_[depth_++].get();
    scratch_->call.op = &op;
    scratch_->call.stack = stack;
    scratch_->fresh.clear();
  }
  ~Recording() { --depth_; }
  Recording(const Recording&) = delete;

  void run() {
    Call& call = scratch_->call;
    prepare(call);
    ensure_started(call.device);
    Issuer& issuer = current_issuer();
    const bool backward = in_backward();
    if (!backward && issuer.optimizer_depth == 0) {
      cross_boundaries(issuer);
    }
    const bool inference = !backward && issuer.optimizer_depth == 0 && !at::GradMode::is_enabled();
    if (wants_rehearsal(call) && !issuer.abstract) {
      rehearse(call);
    }
    const Circumstances at{backward && recomputing(), issuer.abstract, inference};
    Signature* signature = nullptr;
    while (signature == nullptr || signature->kind == Signature::kResize) {
      signature = attempt(issuer, at);
      if (signature != nullptr && signature->kind == Signature::kResize) {
        resize_outs(call, *signature);
      }
    }
    if (signature->kind == Signature::kFallback) {
      run_on_cpu(call);
      return;
    }
    if (signature->kind == Signature::kDynamic) {
      lowering().run_dynamic(call, *signature);
      return;
    }
    if (signature->returns.empty()) {
      bump_versions(call);
    }
    push_results(call.stack, call, *signature, scratch_->fresh);
    if (backward && is_accumulating(*call.op)) {
      issuer.accumulated = true;
    }
    finish_mode(issuer, call);
  }

 private:
  struct Scratch {
    Call call;
    std::vector<TpuBuffer*> fresh;
  };

  // One try under the lock. Null: something had to be done first, try again.
  Signature* attempt(Issuer& issuer, const Circumstances& at) {
    Call& call = scratch_->call;
    Obstacle obstacle;
    uint64_t serial = 0;
    std::string poison;
    {
      std::unique_lock<std::mutex> guard(recorder_lock());
      const bool fill = is_state_fill(issuer, call);
      issuer.num_devices = std::max<int>(issuer.num_devices, call.device + 1);
      auto& slot = fill ? issuer.slots[call.device].fills : issuer.slots[call.device].main;
      if (slot == nullptr) {
        slot = std::make_unique<Program>(call.device);
        slot->fills = fill;
        slot->issuer = &issuer;
      }
      obstacle = scan(call, slot.get());
      if (obstacle.poison != nullptr) {
        poison = *obstacle.poison;
      } else if (obstacle.program != nullptr) {
        serial = obstacle.program->serial;
        if (obstacle.program->running) {
          check_not_mine(*obstacle.program);
          guard.unlock();
          wait_for_a_program();
          return nullptr;
        }
      } else if (Signature* signature = signature_cache().find(call)) {
        if (signature->kind == Signature::kNode) {
          slot->append(call, *signature, at, scratch_->fresh);
          counters().records += 1;
        }
        return signature;
      }
    }
    if (obstacle.poison != nullptr) {
      host().raise_poisoned(poison);
    }
    if (obstacle.program != nullptr) {
      finish(obstacle.program, serial, "value of another program");
      return nullptr;
    }
    auto signature = lowering().resolve(call);
    std::lock_guard<std::mutex> guard(recorder_lock());
    signature_cache().insert(std::move(signature));
    return nullptr;
  }

  // Fresh optimizer state: filled into a buffer that holds nothing yet, during a step.
  static bool is_state_fill(const Issuer& issuer, const Call& call) {
    return call.op->is_fill && issuer.optimizer_depth > 0 && call.arg(0).isTensor() &&
           buffer_of(call.arg(0).toTensor())->state == State::kEmpty;
  }

  void finish_mode(Issuer& issuer, const Call& call) {
    auto& slot = issuer.slots[call.device];
    const EagerMode mode = eager_mode();
    if (mode != EagerMode::kFused) {
      flush(call.device, mode == EagerMode::kStrict ? "strict mode" : "debug mode", true);
      if (mode == EagerMode::kDebug) {
        lowering().check(*call.op, call.device);
      }
    } else if (slot.main != nullptr) {
      if (static_cast<int64_t>(slot.main->nodes.size()) >= max_nodes.load(std::memory_order_relaxed)) {
        flush(call.device, "size limit");
      } else if (slot.main->repeats()) {
        flush(call.device, "repetition without gradients");
      }
    }
  }

  static thread_local std::vector<std::unique_ptr<Scratch>> pool_;
  static thread_local size_t depth_;
  Scratch* scratch_;
};
thread_local std::vector<std::unique_ptr<Recording::Scratch>> Recording::pool_;
thread_local size_t Recording::depth_ = 0;

} // namespace

Counters& counters() {
  static auto* all = new Counters();
  return *all;
}

EagerMode eager_mode() {
  return static_cast<EagerMode>(the_mode.load(std::memory_order_relaxed));
}

void set_eager_mode(EagerMode mode) {
  flush(-1, "eager mode changed");
  the_mode = static_cast<int>(mode);
}

void set_max_nodes(int64_t limit) {
  max_nodes = limit;
}

void record(OpInfo& op, torch::jit::Stack* stack) {
  Recording(op, stack).run();
}

void leave_optimizer(int depth) {
  Issuer& issuer = current_issuer();
  issuer.optimizer_depth = depth;
  issuer.step_done = issuer.step_done || depth == 0;
}

static void cross_step(const char* reason) {
  Issuer& issuer = current_issuer();
  if (issuer.step_done && issuer.optimizer_depth == 0 && !in_backward()) {
    issuer.step_done = false;
    issuer.accumulated = false;
    flush(-1, reason);
  }
}

void end_zero_grad() {
  cross_step("zero_grad");
}

void next_batch() {
  cross_step("next batch");
}

} // namespace tpu
