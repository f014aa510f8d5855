package connectivity

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/kubeconfig"
)

// tokenLifetime is that of the token of the test.
const tokenLifetime = 15 * time.Minute

// token asks the principal for a token of the person who tests, and reaches the resource proxy.
func (t *tester) token(ctx context.Context) (string, error) {
	begin := time.Now()
	granted, err := t.request(ctx, t.name)
	if err != nil {
		return "", err
	}
	says := fmt.Sprintf("made out to %s in %s", granted.User, elapsed(begin))
	proxy, err := t.doors.resourceProxy(ctx)
	if err != nil {
		return "", err
	}
	config, err := restOf(granted, t.name, proxy)
	if err != nil {
		return "", err
	}
	return says, t.reach(config)
}

// request asks for a token of an agent.
func (t *tester) request(ctx context.Context, agent string) (*kubeconfig.Granted, error) {
	return kubeconfig.Ask(ctx, t.config, kubeconfig.Question{
		Namespace: t.conn.Namespace, Agent: agent, Lifetime: tokenLifetime,
		Timeout: t.ask.timeout,
	})
}

// restOf is how to call an agent's spoke.
func restOf(granted *kubeconfig.Granted, agent string, proxy *url.URL) (*rest.Config, error) {
	return clientcmd.NewDefaultClientConfig(*granted.Kubeconfig(agent, proxy), &clientcmd.ConfigOverrides{}).ClientConfig()
}
