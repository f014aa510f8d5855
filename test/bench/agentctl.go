//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/bench/report"
)

const (
	agentctlRuns   = 40  // of each command
	agentctlAgents = 100 // that the list has
	// agentctlVersion and agentctlList bound the median of a command, in milliseconds.
	agentctlVersion, agentctlList = 150, 400
)

// runAgentctl measures how long a person waits for commands of agentctl, in which Helm is linked.
func runAgentctl(ctx context.Context, b *bench, s *report.Scenario) (err error) {
	s.Setup = fmt.Sprintf("Real kube-apiserver and etcd for the hub, our principal, %d Agents that are not connected. "+
		"Each command is a new process, %d times one after the other.", agentctlAgents, agentctlRuns)
	w, err := startBenchEnv(ctx, b, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	client, err := dynamic.NewForConfig(w.hub.REST())
	if err != nil {
		return err
	}
	b.say("registering %d agents", agentctlAgents)
	if err := register(ctx, client, agentNames(agentctlAgents)); err != nil {
		return err
	}
	b.say("running agentctl")
	for _, c := range []struct {
		args   []string
		most   float64
		answer string // is in what it prints
	}{
		{[]string{"version"}, agentctlVersion, "agentctl"},
		{[]string{"agent", "list"}, agentctlList, agentNames(agentctlAgents)[agentctlAgents-1]},
	} {
		took := make([]time.Duration, 0, agentctlRuns)
		for range agentctlRuns {
			begun := time.Now()
			out, err := w.h.Agentctl(ctx, w.hub, c.args...)
			if err != nil {
				return err
			}
			took = append(took, time.Since(begun))
			if !strings.Contains(out, c.answer) {
				return fmt.Errorf("agentctl %s prints %q, without %s", strings.Join(c.args, " "), out, c.answer)
			}
		}
		name := "agentctl " + strings.Join(c.args, " ")
		s.Target(name+", p50", report.Milliseconds(report.Median(took)), "ms", report.AtMost(c.most))
		s.Note(name+", p99", report.Milliseconds(report.Quantile(took, 0.99)), "ms")
	}
	return nil
}
