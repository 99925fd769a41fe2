// Switches between stacks: the threads of a block take turns instead of running at the same time.
//
// perfsvc_switch(&from, to) saves the callee-saved registers on the present stack, stores its pointer in `from`, and
// continues where the stack `to` was left. The C library's makecontext is missing from musl and asks the
// kernel for the signal mask; setjmp mangles pointers; both cost several times as much.
#pragma once

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
perfsvc_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
perfsvc_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#else
#error "unsupported on cpu: kernels with barriers on this processor (x86-64 and AArch64 are known)"
#endif

extern "C" void perfsvc_switch(void** from, void* to) __asm__("perfsvc_switch");

namespace perfsvc {

constexpr size_t stack_bytes = 256 << 10;
constexpr size_t page_bytes = 64 << 10;  // the largest page of the processors above

// The lowest page of a stack faults, so that a stack overflow ends the process and corrupts nothing.
inline void guard_stack(char* base) { mprotect(base, page_bytes, PROT_NONE); }

// Returns the pointer of a new stack that calls `entry`, which must not return.
inline void* new_stack(char* base, unsigned index, void (*entry)()) {
  // If the tops of stacks had equal offsets within 64 KiB, they would all compete for the same few lines of the caches.
  char* top = base + stack_bytes - index * 320 % (64 << 10);
#if defined(__x86_64__)
  void** sp = reinterpret_cast<void**>(top) - 8;
  sp[6] = reinterpret_cast<void*>(entry);
#else
  void** sp = reinterpret_cast<void**>(top) - 20;
  sp[11] = reinterpret_cast<void*>(entry);
#endif
  return sp;
}

}  // namespace perfsvc
