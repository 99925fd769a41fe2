// The library functions of test_libraries.py.
#include <perfsvc.h>
#include <memory>

PERFSVC_LIBRARY(describe, in) {
    char* out = in.array<char>("out");
    std::string text = in.dtype("x") + " " + std::to_string(in.elements("x"));
    for (long long extent : in.shape("x")) text += " " + std::to_string(extent);
    text += " " + std::to_string(in.integer("n")) + " " + in.text("layout") + " " + std::to_string(in.real("alpha"));
    text += in.array<void>("x") == static_cast<void*>(in.array<short>("x")) ? " same" : " other";
    text += " " + std::to_string(in.real("n"));
    return [=](cudaStream_t stream) {
        std::snprintf(out, 200, "%s %s", text.c_str(), stream ? "stream" : "none");
    };
}

static int living = 0;

PERFSVC_LIBRARY(counts, in) {
    char* out = in.array<char>("out");
    char* workspace = static_cast<char*>(in.workspace(in.integer("n")));
    ++living;
    in.at_end([] { --living; });
    return [=, &in](cudaStream_t) {
        workspace[0] = 'w';
        std::snprintf(out, 200, "%d %c %lld", living, workspace[0], in.integer("n"));
    };
}

PERFSVC_LIBRARY(late, in) {
    auto calls = std::make_shared<int>(0);
    return [=](cudaStream_t) { PERFSVC_CHECK(++*calls == 2 ? 7 : 0); };
}

PERFSVC_LIBRARY(early, in) { throw std::runtime_error("no licence"); }
PERFSVC_LIBRARY(strange, in) { return [](cudaStream_t) { throw 3; }; }
PERFSVC_LIBRARY(nothing, in) { return perfsvc::Work(); }
PERFSVC_LIBRARY(unknown_array, in) { in.array<char>("y"); return [](cudaStream_t) {}; }
PERFSVC_LIBRARY(unknown_value, in) { in.integer("m"); return [](cudaStream_t) {}; }
PERFSVC_LIBRARY(wrong_kind, in) { in.integer("alpha"); return [](cudaStream_t) {}; }
PERFSVC_LIBRARY(wrong_size, in) { in.array<double>("x"); return [](cudaStream_t) {}; }

PERFSVC_LIBRARY(end, in) {
    ++living;
    in.at_end([] { --living; });
    in.at_end([] { throw std::runtime_error("handle is busy"); });
    return [](cudaStream_t) {};
}

extern "C" __attribute__((visibility("default"))) const perfsvc::Entry perfsvc_library_old;
const perfsvc::Entry perfsvc_library_old = {99, nullptr, nullptr, nullptr};
__attribute__((section("perfsvc_library"), used)) static const char perfsvc_mark_old = 1;
