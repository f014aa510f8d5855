// Package pool bounds the connections that live calls are passed on by, and how many of them
// are made at a time.
package pool

import (
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// What is kept for the next call: connections of the hub to agents, and of an agent to
// its API server. One that is not kept is made again, with a stream of the tunnel and a
// TLS handshake, which costs several times what the call itself does.
const (
	// IdleDials is the number of connections to one agent, and of that to its API server:
	// as many as a busy Argo CD calls one spoke at a time. What is beyond ends with its
	// call.
	IdleDials = 128
	// IdleDialsInAll is the number to all agents together. The one that was not used for
	// longest goes first.
	IdleDialsInAll = 1024
	// IdleDialTime is for how long. The other end keeps them longer, so that who is about
	// to use one is who ends it.
	IdleDialTime = 30 * time.Second
)

// ServerTransport returns what reaches the API server of a REST config, with the bounds
// above, and that of calls, in place of client-go's. A connection that is made for a call
// that was given up counts as well, so that who calls and gives up does not have ever more
// of them made.
func ServerTransport(config *rest.Config, secure bool, calls int, room Dials) (http.RoundTripper, error) {
	if config.Transport != nil {
		return rest.TransportFor(config) // it has bounds of its own
	}
	if config.Dial == nil {
		// client-go gives one transport to all who dial in the same way, and this one is
		// not like theirs. It has the same two times.
		config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	if secure { // else nothing is said before the answer, which may take its time
		config.Dial = room.bounded(config.Dial)
	}
	server, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	for inner := server; ; {
		switch t := inner.(type) {
		case *http.Transport:
			t.MaxIdleConnsPerHost, t.MaxIdleConns, t.IdleConnTimeout = IdleDials, IdleDials, IdleDialTime
			t.MaxConnsPerHost = calls
			return server, nil
		case utilnet.RoundTripperWrapper:
			inner = t.WrappedRoundTripper()
		default:
			return nil, fmt.Errorf("a transport of type %T has no bounds that are known", t)
		}
	}
}
