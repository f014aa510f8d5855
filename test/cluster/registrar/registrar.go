// Package registrar registers a CSI driver with kubelet, as the driver registrar of Kubernetes CSI does: it
// asks the driver for its name (CSI, Identity.GetPluginInfo) and serves kubelet's registration API
// (k8s.io/kubelet/pkg/apis/pluginregistration/v1) on a socket in the folder that kubelet watches. As long as
// the socket is there, kubelet has pods mount volumes of the driver.
package registrar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/validation"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// csiVersion is the version of CSI that kubelet is told of. It takes all drivers of version 1.
const csiVersion = "1.0.0"

// drain is how long kubelet may take to hear an answer at the end.
const drain = 5 * time.Second

// Config holds what a Registrar needs. Fields without a stated default are required.
type Config struct {
	// Driver is the path of the driver's socket.
	Driver string
	// Endpoint is the same socket by its path on the node, where kubelet dials it. Empty means Driver.
	Endpoint string
	// Registry is the folder in which kubelet looks for sockets, plugins_registry below its root.
	Registry string
	Log      zerolog.Logger
}

// Registrar registers one driver.
type Registrar struct {
	cfg Config
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Registrar, error) {
	switch {
	case cfg.Driver == "":
		return nil, errors.New("registrar: no path of the driver's socket")
	case cfg.Registry == "":
		return nil, errors.New("registrar: no folder of kubelet's registry")
	case cfg.Endpoint == "":
		cfg.Endpoint = cfg.Driver
	}
	return &Registrar{cfg: cfg}, nil
}

// Run waits for the driver, and has kubelet register it until ctx is done. Then it removes its socket, by which
// kubelet forgets the driver. It returns an error when the driver's name is none, or when kubelet refuses it.
func (r *Registrar) Run(ctx context.Context) error {
	name, err := r.driverName(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an ordered stop, which is what err tells of
	}
	if err != nil {
		return fmt.Errorf("ask the driver at %s for its name: %w", r.cfg.Driver, err)
	}
	l, err := listen(ctx, filepath.Join(r.cfg.Registry, name+"-reg.sock"))
	if err != nil {
		return err
	}
	log := r.cfg.Log.With().Str("driver", name).Logger()
	log.Info().Stringer("socket", l.Addr()).Msg("waiting for kubelet")
	return serve(ctx, l, &registration{log: log, refused: make(chan error, 1), info: &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: name, Endpoint: r.cfg.Endpoint, SupportedVersions: []string{csiVersion},
	}})
}

// driverName waits until the driver answers.
func (r *Registrar) driverName(ctx context.Context) (string, error) {
	retries := grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second,
		},
		MinConnectTimeout: 2 * time.Second,
	}
	conn, err := grpc.NewClient("unix:"+r.cfg.Driver,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(retries))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // it has answered
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	return info.GetName(), checkName(info.GetName())
}

// maxDriverName is the limit of CSI for a driver's name, in bytes.
const maxDriverName = 63

// checkName returns an error unless Kubernetes would take the name for that of a driver. It is part of the
// socket's path.
func checkName(name string) error {
	problems := validation.IsDNS1123Subdomain(strings.ToLower(name))
	if len(name) > maxDriverName {
		problems = append(problems, validation.MaxLenError(maxDriverName))
	}
	if len(problems) > 0 {
		return fmt.Errorf("%q is not a driver's name: %s", name, strings.Join(problems, ", "))
	}
	return nil
}

// listen listens on a socket that a registrar before this one may have left.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return (&net.ListenConfig{}).Listen(ctx, "unix", socket)
}

// serve serves kubelet until ctx is done, or the driver is refused, and removes the socket.
func serve(ctx context.Context, l net.Listener, of *registration) error {
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, of)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil // stopped before it began
	})
	g.Go(func() (err error) {
		select {
		case <-ctx.Done():
		case err = <-of.refused:
		}
		force := time.AfterFunc(drain, server.Stop)
		defer force.Stop()
		server.GracefulStop()
		return err
	})
	return g.Wait()
}

// registration is what kubelet calls.
type registration struct {
	registerapi.UnimplementedRegistrationServer

	info    *registerapi.PluginInfo
	refused chan error // has one value once kubelet has refused the driver
	log     zerolog.Logger
}

// GetInfo implements registerapi.RegistrationServer.
func (r *registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return r.info, nil
}

// NotifyRegistrationStatus implements registerapi.RegistrationServer.
func (r *registration) NotifyRegistrationStatus(
	_ context.Context, status *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	if status.GetPluginRegistered() {
		r.log.Info().Msg("kubelet has registered the driver")
		return &registerapi.RegistrationStatusResponse{}, nil
	}
	select {
	case r.refused <- fmt.Errorf("kubelet refuses driver %s: %s", r.info.GetName(), status.GetError()):
	default: // it has before
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
