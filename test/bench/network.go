//go:build linux

package main

import (
	"context"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// network is what lies between an agent and its principal, and counts what passes.
type network struct {
	*harness.Proxy
	traffic *traffic
	stop    func() error
}

// startNetwork passes connections to a loopback port of its own on to target, until
// close.
func startNetwork(ctx context.Context, target string) (*network, error) {
	n := &network{traffic: newTraffic()}
	var err error
	n.Proxy, err = harness.NewProxy(harness.ProxyConfig{Target: target, Opened: n.traffic.begin, Passed: n.traffic.add})
	if err != nil {
		return nil, err
	}
	n.stop = kit.Start(context.WithoutCancel(ctx), n.Run)
	return n, nil
}

// close ends all connections.
func (n *network) close() error { return n.stop() }
