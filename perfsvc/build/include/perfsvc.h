// A library of a benchmark (library(...) in bench.py) includes this header, and defines one function:
//
//     #include <perfsvc.h>
//
//     PERFSVC_LIBRARY(run, in) {
//         const float* x = in.array<float>("x");
//         float* y = in.array<float>("y");
//         long long n = in.integer("n");
//         return [=](cudaStream_t stream) { PERFSVC_CHECK(double_all(x, y, n, stream)); };
//     }
//
// perfsvc calls the function before it takes samples, and again after it has moved the arrays. The function creates
// handles and gets workspace, and returns the work of one sample. This work queues everything on its stream.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#ifndef __CUDACC__  // a compiler of the host, for the CPU device, whose stream is null
typedef struct CUstream_st* cudaStream_t;
#endif

namespace perfsvc {

// --- the interface between perfsvc and a library: the same layouts as in perfsvc/device/libraries.py ----------------

constexpr unsigned ABI = 1;

struct RawArray {
    const char* name;
    const char* dtype;  // a NumPy dtype name
    void* address;
    unsigned long long elements;
    unsigned long long bytes;
    const long long* shape;
    unsigned long long dimensions;
};

struct RawValue {
    const char* name;
    char kind;  // 'i', 'f' or 't': the field below that holds the value
    long long integer;
    double real;
    const char* text;
};

struct RawCase {
    const RawArray* arrays;
    unsigned long long array_count;
    const RawValue* values;
    unsigned long long value_count;
    void* (*allocate)(unsigned long long bytes);  // returns null if the device has no room
};

struct Message {
    char* text;
    unsigned long long size;
};

// Functions return null or 1 after an error, and 0 after success; then the message is unchanged.
struct Entry {
    unsigned abi;
    void* (*prepare)(const RawCase*, Message);
    int (*run)(void* prepared, void* stream, Message);
    int (*end)(void* prepared, Message);
};

// --- what a library uses --------------------------------------------------------------------------------------------

// The work of one sample. It queues everything on the stream, and neither waits nor allocates.
using Work = std::function<void(cudaStream_t)>;

// The arrays, axes and parameters of a case.
class Case {
public:
    explicit Case(const RawCase& raw) : raw_(raw) {}

    // The device address of an array's first element. Throws if there is no such array, or if its elements have
    // another size than T.
    template <class T>
    T* array(const char* name) const {
        const RawArray& found = find(name);
        if (!std::is_void<T>::value && size_of<T>() * found.elements != found.bytes) {
            throw std::invalid_argument("the array '" + std::string(name) + "' has elements of the type " +
                                        found.dtype + ", and the library takes elements of " +
                                        std::to_string(size_of<T>()) + " bytes");
        }
        return static_cast<T*>(found.address);
    }

    // The NumPy dtype name of an array, such as "float32".
    std::string dtype(const char* name) const { return find(name).dtype; }

    // The extents of an array, in elements, the slowest dimension first.
    std::vector<long long> shape(const char* name) const {
        const RawArray& found = find(name);
        return std::vector<long long>(found.shape, found.shape + found.dimensions);
    }

    // The number of elements of an array.
    long long elements(const char* name) const { return static_cast<long long>(find(name).elements); }

    // The value of an axis or parameter that is an integer.
    long long integer(const char* name) const { return value(name, 'i', "an integer").integer; }

    // The value of an axis or parameter that is a number.
    double real(const char* name) const {
        const RawValue& found = any_value(name);
        return found.kind == 'i' ? static_cast<double>(found.integer) : value(name, 'f', "a number").real;
    }

    // The value of an axis or parameter that is text.
    std::string text(const char* name) const { return value(name, 't', "text").text; }

    // Device memory for intermediate results, aligned to 256 bytes. perfsvc frees it. Throws if there is no room.
    void* workspace(std::size_t bytes) const {
        void* address = raw_.allocate(bytes ? bytes : 1);
        if (!address) throw std::runtime_error("no room for a workspace of " + std::to_string(bytes) + " bytes");
        return address;
    }

    // Call a function after the last sample, for example to destroy a handle. The last one is called first.
    template <class F>
    void at_end(F function) {
        at_end_.emplace_back(std::move(function));
    }

    // Call what at_end has collected; throw the first error afterwards.
    void end() {
        std::exception_ptr first;
        while (!at_end_.empty()) {
            std::function<void()> function = std::move(at_end_.back());
            at_end_.pop_back();
            try {
                function();
            } catch (...) {
                if (!first) first = std::current_exception();
            }
        }
        if (first) std::rethrow_exception(first);
    }

private:
    template <class T>
    static constexpr std::size_t size_of() {
        return sizeof(typename std::conditional<std::is_void<T>::value, char, T>::type);
    }

    const RawArray& find(const char* name) const {
        std::string known;
        for (unsigned long long i = 0; i < raw_.array_count; ++i) {
            if (std::strcmp(raw_.arrays[i].name, name) == 0) return raw_.arrays[i];
            known += (i ? ", " : "") + std::string(raw_.arrays[i].name);
        }
        throw std::invalid_argument("the case has no array '" + std::string(name) + "'; it has " +
                                    (known.empty() ? "none" : known));
    }

    const RawValue& any_value(const char* name) const {
        std::string known;
        for (unsigned long long i = 0; i < raw_.value_count; ++i) {
            if (std::strcmp(raw_.values[i].name, name) == 0) return raw_.values[i];
            known += (i ? ", " : "") + std::string(raw_.values[i].name);
        }
        throw std::invalid_argument("the case has no axis or parameter '" + std::string(name) + "'; it has " +
                                    (known.empty() ? "none" : known));
    }

    const RawValue& value(const char* name, char kind, const char* wanted) const {
        const RawValue& found = any_value(name);
        if (found.kind != kind) throw std::invalid_argument("'" + std::string(name) + "' is not " + wanted);
        return found;
    }

    RawCase raw_;
    std::vector<std::function<void()>> at_end_;
};

// --- errors ---------------------------------------------------------------------------------------------------------

template <class Status>
std::string describe(Status status) {
    return std::to_string(static_cast<long long>(status));
}

#ifdef __CUDACC__
inline std::string describe(cudaError_t status) {
    return std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")";
}
#endif

template <class Status>
void check(Status status, const char* call) {
    if (static_cast<long long>(status) != 0) {
        throw std::runtime_error(std::string(call) + " returned " + describe(status));
    }
}

// Throw if a call returns another status than 0: the success of CUDA, cuBLAS, cuDNN, cuFFT and CUTLASS. The message has
// no line number, because a library's code must not change with its comments.
#define PERFSVC_CHECK(...) ::perfsvc::check((__VA_ARGS__), #__VA_ARGS__)

// Forget the last error of CUDA's runtime, which the next call of check_launches would take for its own.
inline void forget_errors() {
#ifdef __CUDACC__
    static_cast<void>(cudaGetLastError());
#endif
}

// Throw if a launch of this library has failed: <<<...>>> returns no status.
inline void check_launches() {
#ifdef __CUDACC__
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) throw std::runtime_error("a launch or call failed: " + describe(status));
#endif
}

// --- what PERFSVC_LIBRARY defines -----------------------------------------------------------------------------------

struct Prepared {
    Case in;
    Work work;
};

// Call a function; if it throws, copy the text of the exception into the message and return false.
template <class F>
bool guarded(Message message, F function) noexcept {
    try {
        function();
        return true;
    } catch (const std::exception& error) {
        std::snprintf(message.text, message.size, "%s", error.what());
    } catch (...) {
        std::snprintf(message.text, message.size, "an exception that is no std::exception");
    }
    forget_errors();
    return false;
}

template <Work (*function)(Case&)>
struct Library {
    static void* prepare(const RawCase* raw, Message message) {
        Prepared* prepared = nullptr;
        const bool done = guarded(message, [&] {
            prepared = new Prepared{Case(*raw), Work()};
            prepared->work = function(prepared->in);
            if (!prepared->work) throw std::runtime_error("the library returned no work");
            check_launches();
        });
        if (done || !prepared) return prepared;
        char ignored[1];
        end(prepared, Message{ignored, sizeof ignored});
        return nullptr;
    }

    static int run(void* prepared, void* stream, Message message) {
        return !guarded(message, [&] {
            static_cast<Prepared*>(prepared)->work(static_cast<cudaStream_t>(stream));
            check_launches();
        });
    }

    static int end(void* prepared, Message message) {
        Prepared* own = static_cast<Prepared*>(prepared);
        const bool done = guarded(message, [&] {
            own->work = Work();
            own->in.end();
        });
        delete own;
        return !done;
    }
};

}  // namespace perfsvc

// Define the function of a library. NAME is the entry in bench.py, and IN the name of its perfsvc::Case.
#define PERFSVC_LIBRARY(NAME, IN)                                                                             \
    static ::perfsvc::Work perfsvc_function_##NAME(::perfsvc::Case& IN);                                      \
    __attribute__((section("perfsvc_library"), used)) static const char perfsvc_mark_##NAME = 1;              \
    extern "C" __attribute__((visibility("default"))) const ::perfsvc::Entry perfsvc_library_##NAME;          \
    const ::perfsvc::Entry perfsvc_library_##NAME = {                                                         \
        ::perfsvc::ABI,                                                                                       \
        &::perfsvc::Library<perfsvc_function_##NAME>::prepare,                                                \
        &::perfsvc::Library<perfsvc_function_##NAME>::run,                                                    \
        &::perfsvc::Library<perfsvc_function_##NAME>::end,                                                    \
    };                                                                                                        \
    static ::perfsvc::Work perfsvc_function_##NAME(::perfsvc::Case& IN)
