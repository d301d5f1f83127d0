/* SPDX-License-Identifier: Apache-2.0
 *
 * stranger.h: a peer made of a bare socket, for tests of what an engine answers to whom. */
#ifndef RKS_TESTS_STRANGER_H
#define RKS_TESTS_STRANGER_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "mesh.h"
#include "transport/listener.h"

/* From 127.0.0.`host`. */
static inline int stranger_connect_from(uint8_t host, const rks_address *address)
{
    struct sockaddr_storage to;
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xffU) + host)};
    rks_address_to_socket(address, &to);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)); /* connect chooses it */
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
    return fd;
}

static inline int stranger_connect(const rks_address *address)
{
    return stranger_connect_from(1, address);
}

static inline void stranger_send(int fd, const void *bytes, size_t size)
{
    /* The engine may have hung up already: that is for the reader to find. */
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        bytes = (const uint8_t *)bytes + sent;
        size -= (size_t)sent;
    }
}

/* False: the engine hung up first. Never waits longer than WAIT_MS. */
static inline bool stranger_receive(int fd, void *bytes, size_t size)
{
    uint8_t *at = bytes;
    while (size > 0) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
        ssize_t got = recv(fd, at, size, 0);
        if (got <= 0)
            return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

/* Reads to the end; how many bytes there were. */
static inline size_t stranger_drain(int fd)
{
    size_t size = 0;
    uint8_t byte;
    while (stranger_receive(fd, &byte, 1))
        size++;
    return size;
}

static inline void stranger_frame(int fd, enum rks_frame_type type, uint64_t id, uint16_t service,
                                  const void *body, size_t size)
{
    uint8_t bytes[RKS_FRAME_HEADER];
    rks_frame_header header = {.size = size, .id = id, .type = (uint16_t)type, .service = service};
    rks_frame_encode(&header, body, bytes);
    stranger_send(fd, bytes, sizeof(bytes));
    stranger_send(fd, body, size);
}

/* The next frame but those that only say which notes the engine has. The body goes to `body`, at
 * most `room` bytes. */
static inline bool stranger_frame_in(int fd, rks_frame_header *header, void *body, size_t room)
{
    uint8_t bytes[RKS_FRAME_HEADER], resume[RKS_RESUME_BODY];
    rks_error err;
    do {
        if (!stranger_receive(fd, bytes, sizeof(bytes)))
            return false;
        assert_ok(
            rks_frame_decode(bytes, room > sizeof(resume) ? room : sizeof(resume), header, &err),
            &err);
        if (header->type == RKS_FRAME_RESUME && !stranger_receive(fd, resume, sizeof(resume)))
            return false;
    } while (header->type == RKS_FRAME_RESUME || header->type == RKS_FRAME_ACK);
    assert_true(header->size <= room);
    return stranger_receive(fd, body, header->size);
}

/* The mesh that strangers come to, as the engines know it. */
static const mesh *stranger_mesh;

static inline void stranger_place(uint32_t rank, uint8_t place[RKS_PLACE_SIZE])
{
    static const rks_address none;
    const rks_address *address = rank < MESH_MAX ? &stranger_mesh->addresses[rank] : &none;
    memset(place, 0, RKS_PLACE_SIZE);
    place[0] = address->kind;
    memcpy(place + 2, &address->port, 2);
    memcpy(place + 4, address->ip, 16);
}

static inline rks_hello stranger_hello(uint32_t rank, uint32_t to, uint32_t ranks, bool connected)
{
    rks_error err;
    rks_hello hello = {.session = MESH_SESSION,
                       .ranks = ranks,
                       .own_rank = rank,
                       .peer_rank = to,
                       .connected = connected};
    memcpy(hello.key, MESH_SECRET, sizeof(hello.key));
    stranger_place(rank, hello.own_place);
    stranger_place(to, hello.peer_place);
    assert_ok(rks_hello_start(&hello, &err), &err);
    return hello;
}

static inline void stranger_say_hello(int fd, const rks_hello *hello)
{
    uint8_t body[RKS_HELLO_BODY];
    rks_hello_encode(hello, body);
    stranger_frame(fd, RKS_FRAME_HELLO, 0, 0, body, sizeof(body));
}

static inline bool stranger_take_hello(int fd, rks_hello *hello)
{
    rks_frame_header header;
    uint8_t body[RKS_HELLO_BODY];
    rks_error err;
    if (!stranger_frame_in(fd, &header, body, sizeof(body)) || header.type != RKS_FRAME_HELLO ||
        rks_hello_receive(hello, body, &err) != RKS_OK)
        return false;
    stranger_place(hello->peer_rank, hello->peer_place);
    return true;
}

static inline void stranger_say_proof(int fd, const rks_hello *hello)
{
    uint8_t proof[RKS_PROOF_SIZE];
    rks_hello_prove(hello, proof);
    stranger_frame(fd, RKS_FRAME_PROOF, 0, 0, proof, sizeof(proof));
}

static inline bool stranger_take_proof(int fd, rks_hello *hello)
{
    rks_frame_header header;
    uint8_t proof[RKS_PROOF_SIZE];
    return stranger_frame_in(fd, &header, proof, sizeof(proof)) && header.type == RKS_FRAME_PROOF &&
           rks_hello_proved(hello, proof);
}

/* The first frame after the proofs: this process, and the last note of the engine that it took. */
static inline void stranger_say_resume(int fd, uint64_t instance, uint64_t taken)
{
    uint8_t body[RKS_RESUME_BODY];
    rks_store_u64(body, instance);
    rks_store_u64(body + 8, taken);
    stranger_frame(fd, RKS_FRAME_RESUME, 0, 0, body, sizeof(body));
}

enum { STRANGER_INSTANCE = 77 };

/* The whole handshake as `rank`; false: refused. */
static inline bool stranger_enter(int fd, rks_hello *hello)
{
    stranger_say_hello(fd, hello);
    if (!stranger_take_hello(fd, hello))
        return false;
    stranger_say_proof(fd, hello);
    if (!stranger_take_proof(fd, hello))
        return false;
    stranger_say_resume(fd, STRANGER_INSTANCE, 0);
    return true;
}

#endif
