// Shuffles, votes, matches and reductions of a warp: the lanes of a mask meet, and the last one computes all results.
//
// Lanes that the block does not have are removed from every mask. A lane that reads a missing lane reads itself.
#pragma once

namespace perfsvc {

typedef void (*Resolve)(Lane* lanes, unsigned mask);

template <class F> inline void each_lane(unsigned mask, F body) {
  for (; mask != 0; mask &= mask - 1) body(static_cast<unsigned>(__builtin_ctz(mask)));
}

// Returns the lanes of the current thread's warp that the block has.
inline unsigned existing_lanes() {
  unsigned left = self->size - self->current / warp_lanes * warp_lanes;
  return left >= warp_lanes ? ~0u : (1u << left) - 1;
}

inline bool all_met(const Block& b, unsigned base, const Wait& wait) {
  for (unsigned mask = wait.mask; mask != 0; mask &= mask - 1) {
    unsigned thread = base + static_cast<unsigned>(__builtin_ctz(mask));
    if (b.states[thread] != State::at_warp) return false;
    if (b.waits[thread].mask != wait.mask || !same_text(b.waits[thread].what, wait.what)) return false;
  }
  return true;
}

// Returns this lane's result once every lane of the mask has arrived with the same operation.
inline unsigned long long meet(const char* what, Site site, unsigned mask, Resolve resolve, unsigned long long value,
                               unsigned source = 0) {
  Block& b = *self;
  unsigned lane = b.current % warp_lanes, base = b.current - lane;
  mask &= existing_lanes();
  if ((mask >> lane & 1) == 0)
    fail("%s at %s:%d was called by lane %u of warp %u, which its mask 0x%08x does not name", what, site.file, site.line,
         lane, base / warp_lanes, mask);
  b.lanes[b.current] = {value, source, 0};
  b.waits[b.current] = {what, site, mask};
  b.states[b.current] = State::at_warp;
  if (!all_met(b, base, b.waits[b.current])) {
    park();
    return b.lanes[b.current].result;
  }
  resolve(b.lanes + base, mask);
  b.states[b.current] = State::running;
  each_lane(mask & ~(1u << lane), [base](unsigned other) { push_ready(base + other); });
  return b.lanes[b.current].result;
}

template <class T> inline unsigned long long to_bits(T value) {
  static_assert(sizeof(T) <= sizeof(unsigned long long), "a lane holds eight bytes");
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T> inline T from_bits(unsigned long long bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline void resolve_nothing(Lane*, unsigned) {}

inline void resolve_shuffle(Lane* lanes, unsigned mask) {
  each_lane(mask, [=](unsigned lane) {
    unsigned source = lanes[lane].source;
    lanes[lane].result = lanes[mask >> source & 1 ? source : lane].value;
  });
}

inline void resolve_ballot(Lane* lanes, unsigned mask) {
  unsigned ballot = 0;
  each_lane(mask, [&](unsigned lane) { ballot |= static_cast<unsigned>(lanes[lane].value != 0) << lane; });
  each_lane(mask, [=](unsigned lane) { lanes[lane].result = ballot; });
}

inline void resolve_match(Lane* lanes, unsigned mask) {
  each_lane(mask, [=](unsigned lane) {
    unsigned equal = 0;
    each_lane(mask, [&](unsigned other) {
      equal |= static_cast<unsigned>(lanes[other].value == lanes[lane].value) << other;
    });
    lanes[lane].result = equal;
  });
}

template <class T, T (*operation)(T, T)> inline void resolve_reduce(Lane* lanes, unsigned mask) {
  unsigned first = static_cast<unsigned>(__builtin_ctz(mask));
  T total = from_bits<T>(lanes[first].value);
  each_lane(mask & (mask - 1), [&](unsigned lane) { total = operation(total, from_bits<T>(lanes[lane].value)); });
  each_lane(mask, [=](unsigned lane) { lanes[lane].result = to_bits(total); });
}

template <class T> inline T add_of(T a, T b) { return a + b; }
template <class T> inline T min_of(T a, T b) { return a < b ? a : b; }
template <class T> inline T max_of(T a, T b) { return a < b ? b : a; }
template <class T> inline T and_of(T a, T b) { return a & b; }
template <class T> inline T or_of(T a, T b) { return a | b; }
template <class T> inline T xor_of(T a, T b) { return a ^ b; }

template <class T> inline T shuffle(const char* what, Site site, unsigned mask, T value, unsigned source) {
  return from_bits<T>(meet(what, site, mask, resolve_shuffle, to_bits(value), source));
}

inline int lane_id() { return static_cast<int>(self->current % warp_lanes); }

}  // namespace perfsvc

#define PERFSVC_SITE perfsvc::Site site = perfsvc::Site::here()

template <class T> inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, PERFSVC_SITE) {
  int from = (perfsvc::lane_id() & ~(width - 1)) | (source & (width - 1));
  return perfsvc::shuffle("__shfl_sync()", site, mask, value, static_cast<unsigned>(from));
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, PERFSVC_SITE) {
  int lane = perfsvc::lane_id(), from = lane - static_cast<int>(delta);
  if (from < (lane & ~(width - 1))) from = lane;
  return perfsvc::shuffle("__shfl_up_sync()", site, mask, value, static_cast<unsigned>(from));
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, PERFSVC_SITE) {
  int lane = perfsvc::lane_id(), from = lane + static_cast<int>(delta);
  if (from > (lane | (width - 1))) from = lane;
  return perfsvc::shuffle("__shfl_down_sync()", site, mask, value, static_cast<unsigned>(from));
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize, PERFSVC_SITE) {
  int lane = perfsvc::lane_id(), from = lane ^ lanes;
  if (from > (lane | (width - 1))) from = lane;
  return perfsvc::shuffle("__shfl_xor_sync()", site, mask, value, static_cast<unsigned>(from));
}

inline unsigned __ballot_sync(unsigned mask, int predicate, PERFSVC_SITE) {
  return static_cast<unsigned>(perfsvc::meet("__ballot_sync()", site, mask, perfsvc::resolve_ballot, predicate != 0));
}
inline int __any_sync(unsigned mask, int predicate, PERFSVC_SITE) {
  return perfsvc::meet("__any_sync()", site, mask, perfsvc::resolve_ballot, predicate != 0) != 0;
}
inline int __all_sync(unsigned mask, int predicate, PERFSVC_SITE) {
  return perfsvc::meet("__all_sync()", site, mask, perfsvc::resolve_ballot, predicate == 0) == 0;
}
template <class T> inline unsigned __match_any_sync(unsigned mask, T value, PERFSVC_SITE) {
  unsigned long long bits = perfsvc::to_bits(value);
  return static_cast<unsigned>(perfsvc::meet("__match_any_sync()", site, mask, perfsvc::resolve_match, bits));
}
template <class T> inline unsigned __match_all_sync(unsigned mask, T value, int* all_equal, PERFSVC_SITE) {
  unsigned long long bits = perfsvc::to_bits(value);
  unsigned there = mask & perfsvc::existing_lanes();
  *all_equal = perfsvc::meet("__match_all_sync()", site, mask, perfsvc::resolve_match, bits) == there;
  return *all_equal ? there : 0;
}

inline void __syncwarp(unsigned mask = ~0u, PERFSVC_SITE) {
  perfsvc::meet("__syncwarp()", site, mask, perfsvc::resolve_nothing, 0);
}

// Returns the lanes that arrive at the same line before the other lanes of the warp have ended or wait.
inline unsigned __activemask(PERFSVC_SITE) {
  perfsvc::Block& b = *perfsvc::self;
  b.states[b.current] = perfsvc::State::at_activemask;
  b.waits[b.current] = {"__activemask()", site, 0};
  perfsvc::park();
  return static_cast<unsigned>(b.lanes[b.current].result);
}

#define PERFSVC_REDUCE(name, operation, T)                                                                   \
  inline T name(unsigned mask, T value, PERFSVC_SITE) {                                                      \
    return perfsvc::from_bits<T>(perfsvc::meet(#name "()", site, mask, perfsvc::resolve_reduce<T, operation<T>>, \
                                               perfsvc::to_bits(value)));                                    \
  }
PERFSVC_REDUCE(__reduce_add_sync, perfsvc::add_of, int)
PERFSVC_REDUCE(__reduce_add_sync, perfsvc::add_of, unsigned)
PERFSVC_REDUCE(__reduce_min_sync, perfsvc::min_of, int)
PERFSVC_REDUCE(__reduce_min_sync, perfsvc::min_of, unsigned)
PERFSVC_REDUCE(__reduce_max_sync, perfsvc::max_of, int)
PERFSVC_REDUCE(__reduce_max_sync, perfsvc::max_of, unsigned)
PERFSVC_REDUCE(__reduce_and_sync, perfsvc::and_of, unsigned)
PERFSVC_REDUCE(__reduce_or_sync, perfsvc::or_of, unsigned)
PERFSVC_REDUCE(__reduce_xor_sync, perfsvc::xor_of, unsigned)
#undef PERFSVC_REDUCE
#undef PERFSVC_SITE
