// Keeps Ctrl-C away from a moment at which it would lose something.
#pragma once

#include "csrc/python/Objects.h"

namespace tpu {

// Ctrl-C waits between the moment at which XLA takes the donated arrays and the one at which buffers hold their
// successors: what came between would be lost.
class DeferredInterrupt {
 public:
  DeferredInterrupt() : handler_(call_bridge("defer_interrupt")) {}
  DeferredInterrupt(const DeferredInterrupt&) = delete;
  ~DeferredInterrupt() {
    try {
      if (!handler_.is_none() && call_bridge("resume_interrupt", handler_).cast<bool>()) {
        PyErr_SetInterrupt(); // raised by the next Python instruction
      }
    } catch (python_error&) { // another one, which came just after the handler was back
      PyErr_SetInterrupt();
    }
  }

 private:
  py::object handler_;
};

} // namespace tpu
