// Command policy enforces NetworkPolicies on one node of the cluster tests, in the network namespace in which
// it runs:
//
//	nsenter --target $NODE --net -- policy --kubeconfig node.kubeconfig --node hub
//
// It needs root and the program nft. Without --kubeconfig it is a pod, of the host's network. SIGTERM and
// SIGINT end it and leave the rules as they are; a second one kills it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/test/cluster/policy"
)

func main() {
	if err := run(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "policy:", err) // nowhere else to say it
		os.Exit(1)
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "`path` of a kubeconfig (default that of the pod)")
	node := flag.String("node", "", "`name` of the node whose pods are isolated (required)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal kills

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	enforcer, err := policy.New(policy.Config{
		Client: client, Node: *node, Log: zerolog.New(os.Stderr).With().Timestamp().Logger(),
	})
	if err != nil {
		return err
	}
	return enforcer.Run(ctx)
}
