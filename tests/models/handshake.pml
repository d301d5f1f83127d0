/* SPDX-License-Identifier: Apache-2.0
 *
 * handshake.pml: the handshake of two ranks (src/transport/frame.h) among an intruder who owns the
 * network: it sees all, and sends what it likes to whom it likes. tests/model.py runs it by spin.
 *
 * Ranks A and B are honest. Rank C is the intruder's: it has the keys of A and C, and of B and C.
 * Hashes are perfect: a proof by the key of A and B comes from one of their sessions, or is
 * refused. Tags of hellos guard against floods only, so the intruder may make any. What a session
 * hears in a hello is the intruder's choice: any rank, any nonce that was sent, any feature bits.
 * It may also have put an address of its own, a relay's, for a rank into the launcher's store.
 *
 * A session of its owner:
 *
 *   IDLE ---(connects: hello)-------► SAID ---(hello: proof)--► PROVED ---(proof)--► OPEN   connects
 *   IDLE ---(hello: hello)----------► SAID ---(proof: proof)-----------------------► OPEN   accepts
 *
 * Invariants, when a session of A opens with peer B (and the same with A and B exchanged):
 *
 *   partner   B has a session with peer A in the other role, with the same nonces, features and
 *             addresses; it is OPEN, or if A accepted, at least PROVED
 *   alone     no other session of A is open with the same partner
 *   relay     neither side took a relay's address for the other's
 *
 * NO_ROLE, NO_NONCE_CONNECTED, NO_NONCE_ACCEPTED, NO_FEATURES and NO_PLACES leave one field out of
 * the proofs: each breaks an invariant. REACH asks whether sessions of A and B can open at all.
 * CROSSING: both ranks connect and accept. Else one connects twice, and the other accepts twice. */

#define SESSIONS 4
#define A 0
#define B 1
#define C 2
#define INTRUDER_NONCE SESSIONS /* a session's own nonce is its number */
#define RELAY 9                 /* an address; a rank's own is its number */

#ifdef CROSSING
#define OWNER(s) ((s) == 0 || (s) == 3 -> A : B)
#define CONNECTS(s) ((s) == 0 || (s) == 1)
#else
#define OWNER(s) ((s) < 2 -> A : B)
#define CONNECTS(s) ((s) < 2)
#endif
#define WANTS(s) (OWNER(s) == A -> 1 : 0) /* feature bits: A asks for encryption, B does not */

mtype = { IDLE, SAID, PROVED, OPEN };
mtype state[SESSIONS] = IDLE;
byte peer[SESSIONS];         /* rank */
byte nonce[SESSIONS];        /* heard */
byte features[SESSIONS];     /* heard */
byte place[SESSIONS];        /* of the peer, from the launcher's store */

/* What goes into a proof, as session s sees it. */
#define FROM(s) (CONNECTS(s) -> OWNER(s) : peer[s])
#define TO(s) (CONNECTS(s) -> peer[s] : OWNER(s))
#define NONCE_C(s) (CONNECTS(s) -> (s) : nonce[s])
#define NONCE_A(s) (CONNECTS(s) -> nonce[s] : (s))
#define FEATURES_C(s) (CONNECTS(s) -> WANTS(s) : features[s])
#define FEATURES_A(s) (CONNECTS(s) -> features[s] : WANTS(s))
#define PLACE_C(s) (CONNECTS(s) -> OWNER(s) : place[s])
#define PLACE_A(s) (CONNECTS(s) -> place[s] : OWNER(s))

#define SAME_NONCES(s, t) (NONCE_C(s) == NONCE_C(t) && NONCE_A(s) == NONCE_A(t))
#define SAME_FEATURES(s, t) (FEATURES_C(s) == FEATURES_C(t) && FEATURES_A(s) == FEATURES_A(t))
#define SAME_PLACES(s, t) (PLACE_C(s) == PLACE_C(t) && PLACE_A(s) == PLACE_A(t))

#ifdef NO_ROLE
#define ROLE_FITS(s, t) true
#else
#define ROLE_FITS(s, t) (CONNECTS(s) != CONNECTS(t))
#endif
#ifdef NO_NONCE_CONNECTED
#define NONCES_FIT(s, t) (NONCE_A(s) == NONCE_A(t))
#elif defined(NO_NONCE_ACCEPTED)
#define NONCES_FIT(s, t) (NONCE_C(s) == NONCE_C(t))
#else
#define NONCES_FIT(s, t) SAME_NONCES(s, t)
#endif
#ifdef NO_FEATURES
#define FEATURES_FIT(s, t) true
#else
#define FEATURES_FIT(s, t) SAME_FEATURES(s, t)
#endif
#ifdef NO_PLACES
#define PLACES_FIT(s, t) true
#else
#define PLACES_FIT(s, t) SAME_PLACES(s, t)
#endif

/* The proof that session s has sent is the one that t waits for. */
#define PROVES(s, t) ((state[s] == PROVED || state[s] == OPEN) && ROLE_FITS(s, t) && \
                      FROM(s) == FROM(t) && TO(s) == TO(t) && NONCES_FIT(s, t) && \
                      FEATURES_FIT(s, t) && PLACES_FIT(s, t))
/* The intruder can make it, or has seen it. */
#define CAN_COME(t) (peer[t] == C || PROVES(0, t) || PROVES(1, t) || PROVES(2, t) || PROVES(3, t))

/* ---- invariants ------------------------------------------------------------------------------ */

#define PARTNER(s, t) (OWNER(s) == peer[t] && peer[s] == OWNER(t) && CONNECTS(s) != CONNECTS(t) && \
                       SAME_NONCES(s, t) && SAME_FEATURES(s, t) && SAME_PLACES(s, t) && \
                       (state[s] == OPEN || (state[s] == PROVED && !CONNECTS(t))))
#define HAS_PARTNER(t) (PARTNER(0, t) || PARTNER(1, t) || PARTNER(2, t) || PARTNER(3, t))
#define TWIN(s, t) ((s) != (t) && state[s] == OPEN && OWNER(s) == OWNER(t) && \
                    CONNECTS(s) == CONNECTS(t) && SAME_NONCES(s, t))
#define HAS_TWIN(t) (TWIN(0, t) || TWIN(1, t) || TWIN(2, t) || TWIN(3, t))

inline check(t)
{
    if
    :: peer[t] == C -> skip /* its own frames are all that C can say */
    :: else ->
        assert(HAS_PARTNER(t));
        assert(!HAS_TWIN(t));
        assert(place[t] == peer[t])
    fi
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* A hello: any rank but the owner's, any nonce that was sent or is the intruder's, any features. */
inline hear(t)
{
    if
    :: state[0] != IDLE -> nonce[t] = 0
    :: state[1] != IDLE -> nonce[t] = 1
    :: state[2] != IDLE -> nonce[t] = 2
    :: state[3] != IDLE -> nonce[t] = 3
    :: nonce[t] = INTRUDER_NONCE
    fi;
    if
    :: features[t] = 0
    :: features[t] = 1
    fi
}

inline choose_peer(t)
{
    if
    :: peer[t] = 1 - OWNER(t); place[t] = peer[t]
    :: peer[t] = 1 - OWNER(t); place[t] = RELAY
    :: t % 2 == 1 -> peer[t] = C; place[t] = C
    fi
}

proctype connecting(byte t)
{
    atomic { choose_peer(t); state[t] = SAID }
    atomic { hear(t); state[t] = PROVED }
    atomic { CAN_COME(t) -> state[t] = OPEN; check(t) }
}

proctype accepting(byte t)
{
    atomic { choose_peer(t); hear(t); state[t] = SAID }
    atomic { CAN_COME(t) -> state[t] = OPEN; check(t) }
}

#ifdef REACH
proctype reaching()
{
    atomic {
        state[0] == OPEN && peer[0] == B && state[3] == OPEN && peer[3] == (OWNER(3) == A -> B : A) ->
        assert(false)
    }
}
#endif

init {
    atomic {
        byte s;
        for (s : 0 .. SESSIONS - 1) {
            if
            :: CONNECTS(s) -> run connecting(s)
            :: else -> run accepting(s)
            fi
        }
#ifdef REACH
        run reaching()
#endif
    }
}
