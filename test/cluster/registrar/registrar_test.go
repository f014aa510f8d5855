package registrar_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/argomesh/argomesh/test/cluster/registrar"
	"github.com/argomesh/argomesh/test/kit"
)

// driverName is that of the SPIFFE CSI driver.
const driverName = "csi.spiffe.io"

// driver is the identity of a CSI driver.
type driver struct {
	csi.UnimplementedIdentityServer

	name string
	err  error
}

func (d driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "0.2.6"}, d.err
}

// serve serves the driver on a socket until the test ends.
func (d driver) serve(t *testing.T, socket string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	kit.Background(t, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, server.Stop)()
		return server.Serve(l)
	})
}

// env is a node with a driver's socket and kubelet's registry.
type env struct {
	driver, registry string
	log              *kit.Log
}

func newEnv(t *testing.T) env {
	t.Helper()
	dir, err := os.MkdirTemp("", "rg") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e := env{driver: filepath.Join(dir, "csi.sock"), registry: filepath.Join(dir, "registry"), log: kit.NewLog()}
	if err := os.Mkdir(e.registry, 0o750); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e env) registrar(t *testing.T) *registrar.Registrar {
	t.Helper()
	r, err := registrar.New(registrar.Config{
		Driver: e.driver, Endpoint: "/var/lib/kubelet/plugins/csi.spiffe.io/csi.sock", Registry: e.registry, Log: e.log.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (e env) socket() string { return filepath.Join(e.registry, driverName+"-reg.sock") }

// kubelet calls whoever serves the registry's socket, as kubelet does once it sees it.
func (e env) kubelet(t *testing.T) registerapi.RegistrationClient {
	t.Helper()
	kit.EventuallyNil(t, "a socket for kubelet", func() error {
		conn, err := net.Dial("unix", e.socket())
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	conn, err := grpc.NewClient("unix:"+e.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return registerapi.NewRegistrationClient(conn)
}

// left returns the names in the registry.
func (e env) left(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(e.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// wantInfo is what kubelet has to hear.
var wantInfo = &registerapi.PluginInfo{
	Type: "CSIPlugin", Name: driverName, Endpoint: "/var/lib/kubelet/plugins/csi.spiffe.io/csi.sock", SupportedVersions: []string{"1.0.0"},
}

func checkInfo(t *testing.T, kubelet registerapi.RegistrationClient) {
	t.Helper()
	info, err := kubelet.GetInfo(kit.Context(t), &registerapi.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantInfo, info, protocmp.Transform()); diff != "" {
		t.Errorf("GetInfo() (-want +got):\n%s", diff)
	}
}

// A driver is registered, also again when kubelet has restarted, until the registrar is asked to end.
func TestRegistrar(t *testing.T) {
	e := newEnv(t)
	driver{name: driverName}.serve(t, e.driver)
	stop := kit.Background(t, e.registrar(t).Run)
	for range 2 {
		kubelet := e.kubelet(t)
		checkInfo(t, kubelet)
		if _, err := kubelet.NotifyRegistrationStatus(kit.Context(t), &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
			t.Fatal(err)
		}
	}
	if found := e.log.Find("message", "kubelet has registered the driver", "driver", driverName); len(found) != 2 {
		t.Errorf("the log has %d lines of registrations", len(found))
	}
	stop()
	if left := e.left(t); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// A driver may begin later than its registrar.
func TestRegistrarWaitsForTheDriver(t *testing.T) {
	e := newEnv(t)
	kit.Background(t, e.registrar(t).Run)
	driver{name: driverName}.serve(t, e.driver)
	checkInfo(t, e.kubelet(t))
}

// A registrar that was killed leaves its socket, which the next one replaces.
func TestRegistrarReplacesASocket(t *testing.T) {
	e := newEnv(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: e.socket()})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	driver{name: driverName}.serve(t, e.driver)
	kit.Background(t, e.registrar(t).Run)
	checkInfo(t, e.kubelet(t))
}

func TestRegistrarIsRefused(t *testing.T) {
	e := newEnv(t)
	driver{name: driverName}.serve(t, e.driver)
	ended, r := make(chan error, 1), e.registrar(t)
	kit.Background(t, func(ctx context.Context) error {
		ended <- r.Run(ctx)
		return nil
	})
	refusal := &registerapi.RegistrationStatus{Error: "no such plugin type"}
	if _, err := e.kubelet(t).NotifyRegistrationStatus(kit.Context(t), refusal); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "kubelet refuses driver csi.spiffe.io: no such plugin type") {
			t.Errorf("Run() = %v", err)
		}
	case <-kit.Context(t).Done():
		t.Fatal("it runs on")
	}
	if left := e.left(t); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// What is not a driver of which kubelet could be told is an error, and no file of its name is made.
func TestRegistrarRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		driver driver
		want   string
	}{
		"no name":             {driver{}, `"" is not a driver's name`},
		"a path":              {driver{name: "../csi.spiffe.io"}, `"../csi.spiffe.io" is not a driver's name`},
		"a name that is long": {driver{name: strings.Repeat("a", 64)}, "must be no more than 63"},
		"no plugin":           {driver{err: status.Error(codes.Internal, "it is broken")}, "it is broken"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			c.driver.serve(t, e.driver)
			err := e.registrar(t).Run(kit.Context(t))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), e.driver) {
				t.Errorf("Run() = %v, want %q", err, c.want)
			}
			if left := e.left(t); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// Without a registry there is no kubelet to be told.
func TestRegistrarWithoutARegistry(t *testing.T) {
	e := newEnv(t)
	driver{name: driverName}.serve(t, e.driver)
	if err := os.Remove(e.registry); err != nil {
		t.Fatal(err)
	}
	if err := e.registrar(t).Run(kit.Context(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Run() = %v", err)
	}
}

// One that waits for its driver ends when it is asked to.
func TestRegistrarEndsWithoutADriver(t *testing.T) {
	e := newEnv(t)
	ctx, cancel := context.WithCancel(kit.Context(t))
	ended, r := make(chan error, 1), e.registrar(t)
	go func() { ended <- r.Run(ctx) }()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Run() = %v", err)
		}
	case <-kit.Context(t).Done():
		t.Fatal("it runs on")
	}
}

func TestNewRefuses(t *testing.T) {
	for name, cfg := range map[string]registrar.Config{
		"no driver":   {Registry: "/registration"},
		"no registry": {Driver: "/csi/csi.sock"},
	} {
		if _, err := registrar.New(cfg); err == nil {
			t.Errorf("%s: New() takes it", name)
		}
	}
}
