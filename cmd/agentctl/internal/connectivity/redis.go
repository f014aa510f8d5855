package connectivity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
)

// cacheFormat is the version of Argo CD's cache, in all its releases since 1.8.
const cacheFormat = "1.8.3"

// changeTimeout is how long a message is waited for that need not come.
const changeTimeout = 10 * time.Second

// redis asks the hub's Redis proxy for the tree of the Application, as argocd-server does, and
// subscribes to its changes.
func (t *tester) redis(ctx context.Context) (string, error) {
	address, err := t.doors.redisAddress(ctx)
	if err != nil {
		return "", err
	}
	password, err := t.redisPassword(ctx)
	if err != nil {
		return "", err
	}
	dialer, err := redisDialer(address, t.ask.redisCA)
	if err != nil {
		return "", err
	}
	client := goredis.NewClient(&goredis.Options{
		Addr: address, Dialer: dialer, Password: password, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }() // all was read
	instance := appkey.Instance{Name: t.app.name}
	if t.app.namespace != t.conn.Namespace {
		instance.Namespace = t.app.namespace
	}
	begin := time.Now()
	channel := strings.Join([]string{"app", appkey.ManagedResources, instance.String(), cacheFormat}, "|")
	subscription := client.Subscribe(ctx, channel)
	defer func() { _ = subscription.Close() }() // as above
	if _, err := subscription.Receive(ctx); err != nil {
		return "", fmt.Errorf("SUBSCRIBE: %w", err)
	}
	subscribed := elapsed(begin)
	tree, err := treeOf(ctx, client, instance)
	if err != nil {
		return "", err
	}
	apps := t.objects.Resource(cli.ApplicationResource).Namespace(t.app.namespace)
	change := awaitChange(ctx, apps, t.app.name, subscription)
	return fmt.Sprintf("subscribed in %s, %s, %s", subscribed, tree, change), nil
}

// treeOf reads the tree of the Application, in either form of Argo CD's cache.
func treeOf(ctx context.Context, client *goredis.Client, instance appkey.Instance) (string, error) {
	for _, format := range []string{cacheFormat + ".gz", cacheFormat} {
		begin := time.Now()
		key := strings.Join([]string{"app", appkey.ResourcesTree, instance.String(), format}, "|")
		value, err := client.Get(ctx, key).Bytes()
		switch {
		case err == nil:
			return fmt.Sprintf("a tree of %d bytes in %s", len(value), elapsed(begin)), nil
		case errors.Is(err, goredis.Nil):
			return fmt.Sprintf("no tree yet in %s", elapsed(begin)), nil
		case !strings.HasPrefix(err.Error(), "AGENTFORMAT "):
			return "", fmt.Errorf("GET: %w", err)
		}
	}
	return "", errors.New("GET: the spoke's Argo CD has another version of the cache than " + cacheFormat)
}

// awaitChange asks for a refresh, and waits for the change that the spoke's Argo CD then publishes. It
// publishes one only if its comparison succeeds.
func awaitChange(ctx context.Context, apps dynamic.ResourceInterface, name string,
	subscription *goredis.PubSub) string {
	const nothing = "no change was published"
	begin := time.Now()
	refresh := `{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"}}}`
	_, err := apps.Patch(ctx, name, types.MergePatchType, []byte(refresh),
		metav1.PatchOptions{FieldManager: "agentctl"})
	if err != nil {
		return nothing
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if _, err := subscription.ReceiveMessage(ctx); err != nil {
		return nothing
	}
	return "a change was published " + elapsed(begin) + " after a refresh"
}

// redisPassword is that of the Redis of the hub's Argo CD; empty for none.
func (t *tester) redisPassword(ctx context.Context) (string, error) {
	if t.ask.redisFile != "" {
		content, err := os.ReadFile(t.ask.redisFile)
		return strings.TrimSpace(string(content)), err
	}
	argo, err := argocd.Observe(ctx, t.client, t.conn.Namespace)
	if err != nil || argo.Redis == nil || argo.Redis.Secret == "" {
		return "", err
	}
	secret, err := t.client.CoreV1().Secrets(t.conn.Namespace).Get(ctx, argo.Redis.Secret, metav1.GetOptions{})
	if err != nil {
		return "", unlessForbidden(err, "read Secret "+argo.Redis.Secret+", so name a file by --redis-password-file")
	}
	return string(secret.Data[argo.Redis.Key]), nil
}

// redisDialer opens connections, with TLS where authorities are named.
func redisDialer(address, ca string) (func(context.Context, string, string) (net.Conn, error), error) {
	plain := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	if ca == "" {
		return plain, nil
	}
	content, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("--redis-ca %s has no certificate", ca)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}}
		return d.DialContext(ctx, "tcp", address)
	}, nil
}
