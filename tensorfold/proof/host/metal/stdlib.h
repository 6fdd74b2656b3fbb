// The Metal standard library as far as compute kernels need it: included before every translated kernel.
#pragma once
#include "matrix.h"
#define atomic_int metal::atomic<int>
#define atomic_uint metal::atomic<uint>
#define atomic_float metal::atomic<float>
#define atomic_bool metal::atomic<bool>
#define atomic_ulong metal::atomic<ulong>
#define is_function_constant_defined(x) (true)
using metal::as_type;
using metal::atomic;
using metal::vec;
#define MSL_EXPORT(T) namespace metal { using ::T##2; using ::T##3; using ::T##4; }
MSL_EXPORT(char) MSL_EXPORT(uchar) MSL_EXPORT(short) MSL_EXPORT(ushort) MSL_EXPORT(int) MSL_EXPORT(uint)
MSL_EXPORT(long) MSL_EXPORT(ulong) MSL_EXPORT(half) MSL_EXPORT(float) MSL_EXPORT(bool)
#define char2(...) metal::__mk<::char2>(__VA_ARGS__)
#define char3(...) metal::__mk<::char3>(__VA_ARGS__)
#define char4(...) metal::__mk<::char4>(__VA_ARGS__)
#define uchar2(...) metal::__mk<::uchar2>(__VA_ARGS__)
#define uchar3(...) metal::__mk<::uchar3>(__VA_ARGS__)
#define uchar4(...) metal::__mk<::uchar4>(__VA_ARGS__)
#define short2(...) metal::__mk<::short2>(__VA_ARGS__)
#define short3(...) metal::__mk<::short3>(__VA_ARGS__)
#define short4(...) metal::__mk<::short4>(__VA_ARGS__)
#define ushort2(...) metal::__mk<::ushort2>(__VA_ARGS__)
#define ushort3(...) metal::__mk<::ushort3>(__VA_ARGS__)
#define ushort4(...) metal::__mk<::ushort4>(__VA_ARGS__)
#define int2(...) metal::__mk<::int2>(__VA_ARGS__)
#define int3(...) metal::__mk<::int3>(__VA_ARGS__)
#define int4(...) metal::__mk<::int4>(__VA_ARGS__)
#define uint2(...) metal::__mk<::uint2>(__VA_ARGS__)
#define uint3(...) metal::__mk<::uint3>(__VA_ARGS__)
#define uint4(...) metal::__mk<::uint4>(__VA_ARGS__)
#define long2(...) metal::__mk<::long2>(__VA_ARGS__)
#define long3(...) metal::__mk<::long3>(__VA_ARGS__)
#define long4(...) metal::__mk<::long4>(__VA_ARGS__)
#define ulong2(...) metal::__mk<::ulong2>(__VA_ARGS__)
#define ulong3(...) metal::__mk<::ulong3>(__VA_ARGS__)
#define ulong4(...) metal::__mk<::ulong4>(__VA_ARGS__)
#define half2(...) metal::__mk<::half2>(__VA_ARGS__)
#define half3(...) metal::__mk<::half3>(__VA_ARGS__)
#define half4(...) metal::__mk<::half4>(__VA_ARGS__)
#define float2(...) metal::__mk<::float2>(__VA_ARGS__)
#define float3(...) metal::__mk<::float3>(__VA_ARGS__)
#define float4(...) metal::__mk<::float4>(__VA_ARGS__)
#define bfloat2(...) metal::__mk<::bfloat2>(__VA_ARGS__)
#define bfloat3(...) metal::__mk<::bfloat3>(__VA_ARGS__)
#define bfloat4(...) metal::__mk<::bfloat4>(__VA_ARGS__)
#define bool2(...) metal::__mk<::bool2>(__VA_ARGS__)
#define bool3(...) metal::__mk<::bool3>(__VA_ARGS__)
#define bool4(...) metal::__mk<::bool4>(__VA_ARGS__)
