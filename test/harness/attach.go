//go:build linux

package harness

import (
	"errors"

	"k8s.io/client-go/tools/clientcmd"
)

// ErrAttached says that a process belongs to another program, which alone starts and ends it.
var ErrAttached = errors.New("the process belongs to another program")

// ProcessInfo describes a process to another program, which attaches to it.
type ProcessInfo struct {
	Name        string
	CommandLine []string
	PID         int
	LogFile     string
}

// Info describes a process in its present life. That of a nil one is nil.
func (p *Process) Info() *ProcessInfo {
	if p == nil {
		return nil
	}
	return &ProcessInfo{Name: p.Name(), CommandLine: p.CommandLine(), PID: p.PID(), LogFile: p.LogFile()}
}

// AttachProcess returns a process that belongs to another program and lives longer than what
// attaches to it. It can be looked at; what would start, end or signal it fails with
// ErrAttached. A nil one is nil.
func AttachProcess(info *ProcessInfo) *Process {
	if info == nil {
		return nil
	}
	return &Process{
		cmd:      Command{Name: info.Name, Path: info.CommandLine[0], Args: info.CommandLine[1:]},
		attached: info,
	}
}

// ControlPlaneInfo describes a control plane to another program.
type ControlPlaneInfo struct {
	Name, URL, Kubeconfig string
	Server                *ProcessInfo
}

// Info describes a control plane.
func (c *ControlPlane) Info() ControlPlaneInfo {
	return ControlPlaneInfo{Name: c.Name, URL: c.URL, Kubeconfig: c.Kubeconfig, Server: c.Server.Info()}
}

// AttachControlPlane returns a control plane of another program. Its etcd and controllers are
// nil.
func (h *Harness) AttachControlPlane(info ControlPlaneInfo) (*ControlPlane, error) {
	c := &ControlPlane{Name: info.Name, URL: info.URL, Kubeconfig: info.Kubeconfig, Server: AttachProcess(info.Server), h: h}
	var err error
	if c.rest, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, err
	}
	c.rest.QPS, c.rest.Burst = clientQPS, clientBurst
	c.applier, err = newApplier(c.rest)
	return c, err
}

// PrincipalInfo describes a principal to another program.
type PrincipalInfo struct {
	Process                           *ProcessInfo
	Address, AdminAddress, ConfigFile string
}

// Info describes a principal.
func (p *Principal) Info() PrincipalInfo {
	return PrincipalInfo{Process: p.Process.Info(), Address: p.Address, AdminAddress: p.AdminAddress, ConfigFile: p.ConfigFile}
}

// AttachPrincipal returns a principal of another program.
func AttachPrincipal(info PrincipalInfo) *Principal {
	return &Principal{Process: AttachProcess(info.Process), Address: info.Address, AdminAddress: info.AdminAddress, ConfigFile: info.ConfigFile}
}

// AgentInfo describes an agent to another program.
type AgentInfo struct {
	Process                  *ProcessInfo
	AdminAddress, ConfigFile string
}

// Info describes an agent.
func (a *Agent) Info() AgentInfo {
	return AgentInfo{Process: a.Process.Info(), AdminAddress: a.AdminAddress, ConfigFile: a.ConfigFile}
}

// AttachAgent returns an agent of another program.
func AttachAgent(info AgentInfo) *Agent {
	return &Agent{Process: AttachProcess(info.Process), AdminAddress: info.AdminAddress, ConfigFile: info.ConfigFile}
}

// RedisInfo describes a Redis to another program.
type RedisInfo struct {
	Process *ProcessInfo
	Address string
}

// Info describes a Redis.
func (r *Redis) Info() RedisInfo { return RedisInfo{Process: r.Process.Info(), Address: r.Address} }

// AttachRedis returns a Redis of another program.
func AttachRedis(info RedisInfo) *Redis {
	return &Redis{Process: AttachProcess(info.Process), Address: info.Address}
}

// WorkloadAPIInfo describes a Workload API server to another program.
type WorkloadAPIInfo struct {
	Process *ProcessInfo
	Socket  string
}

// Info describes a Workload API server.
func (w *WorkloadAPI) Info() WorkloadAPIInfo {
	return WorkloadAPIInfo{Process: w.Process.Info(), Socket: w.Socket}
}

// AttachWorkloadAPI returns a Workload API server of another program.
func AttachWorkloadAPI(info WorkloadAPIInfo) *WorkloadAPI {
	return &WorkloadAPI{Process: AttachProcess(info.Process), Socket: info.Socket}
}

// ArgoCDInfo describes an Argo CD to another program.
type ArgoCDInfo struct {
	Redis                            RedisInfo
	RepoServer, Controller, Server   *ProcessInfo
	RepoServerAddress, ServerAddress string
	AdminPassword, CLIConfig         string
}

// Info describes an Argo CD.
func (a *ArgoCD) Info() ArgoCDInfo {
	return ArgoCDInfo{
		Redis: a.Redis.Info(), RepoServer: a.RepoServer.Info(), Controller: a.Controller.Info(), Server: a.Server.Info(),
		RepoServerAddress: a.RepoServerAddress, ServerAddress: a.ServerAddress, AdminPassword: a.AdminPassword, CLIConfig: a.CLIConfig(),
	}
}

// AttachArgoCD returns the Argo CD of a control plane, of another program. Its command line
// has the session of that program.
func (h *Harness) AttachArgoCD(at *ControlPlane, info ArgoCDInfo) *ArgoCD {
	return &ArgoCD{
		Redis:      AttachRedis(info.Redis),
		RepoServer: AttachProcess(info.RepoServer), Controller: AttachProcess(info.Controller), Server: AttachProcess(info.Server),
		RepoServerAddress: info.RepoServerAddress, ServerAddress: info.ServerAddress, AdminPassword: info.AdminPassword,
		h: h, controlPlane: at, cliConfig: info.CLIConfig,
	}
}

// FrontDoorInfo describes a principal with its Envoy to another program.
type FrontDoorInfo struct {
	Principal                    PrincipalInfo
	Envoy                        *ProcessInfo
	AdminAddress, StatsAddress   string // of Envoy
	URL, RedisAddress, AuditFile string
}

// Info describes a principal with its Envoy.
func (d *FrontDoor) Info() FrontDoorInfo {
	return FrontDoorInfo{
		Principal: d.Principal.Info(), Envoy: d.Envoy.Info(), AdminAddress: d.Envoy.AdminAddress, StatsAddress: d.Envoy.StatsAddress,
		URL: d.URL, RedisAddress: d.RedisAddress, AuditFile: d.AuditFile,
	}
}

// AttachFrontDoor returns a principal with its Envoy, of another program.
func AttachFrontDoor(info FrontDoorInfo) *FrontDoor {
	return &FrontDoor{
		Principal: AttachPrincipal(info.Principal),
		Envoy:     &Sidecar{Process: AttachProcess(info.Envoy), AdminAddress: info.AdminAddress, StatsAddress: info.StatsAddress},
		URL:       info.URL, RedisAddress: info.RedisAddress, AuditFile: info.AuditFile,
	}
}
