//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/argomesh/argomesh/test/tools/toolset"
)

// prerequisite is something of the operating system, with its package per packager.
type prerequisite struct {
	present  func(ctx context.Context) bool
	packages map[string]string
}

// packagers in the order in which they are looked for, with their install command.
// Homebrew comes first: where it exists it is what its user wants.
var packagers = []struct{ name, install string }{
	{"brew", "brew install"},
	{"apt-get", "apt-get install -y --no-install-recommends"},
	{"dnf", "dnf install -y"},
	{"apk", "apk add"},
	{"pacman", "pacman -S --noconfirm"},
	{"zypper", "zypper install -y"},
}

func inPath(program string) func(context.Context) bool {
	return func(context.Context) bool {
		_, err := exec.LookPath(program)
		return err == nil
	}
}

func hasPip(ctx context.Context) bool {
	return exec.CommandContext(ctx, "python3", "-m", "pip", "--version").Run() == nil
}

// hasCompiler asks for the compiler that the Go toolchain calls.
func hasCompiler(ctx context.Context) bool {
	cc, err := exec.CommandContext(ctx, "go", "env", "CC").Output()
	if err != nil || len(strings.Fields(string(cc))) == 0 {
		return false
	}
	return inPath(strings.Fields(string(cc))[0])(ctx)
}

// needs returns what the operating system must have for these tools, by name.
func needs(tools []toolset.Tool) map[string]prerequisite {
	all := make(map[string]prerequisite)
	for _, tool := range tools {
		if tool.Group == toolset.Servers {
			all["git"] = prerequisite{inPath("git"), map[string]string{"": "git"}}
			all["redis-server"] = prerequisite{inPath("redis-server"), map[string]string{"": "redis", "apt-get": "redis-server"}}
			all["redis-cli"] = prerequisite{inPath("redis-cli"), map[string]string{"": "redis", "apt-get": "redis-tools"}} // with the server everywhere else
		}
		if tool.Group == toolset.Developer {
			// The race detector is linked by it.
			all["a C compiler"] = prerequisite{hasCompiler, map[string]string{"": "gcc", "apt-get": "build-essential"}}
		}
		if tool.Wheel {
			all["python3"] = prerequisite{inPath("python3"), map[string]string{"": "python3", "pacman": "python"}}
			all["pip"] = prerequisite{hasPip, map[string]string{"": "python3-pip", "brew": "python3", "apk": "py3-pip", "pacman": "python-pip"}}
		}
	}
	return all
}

// installPrerequisites installs what is missing where it may (Debian, as root), and
// names the command otherwise.
func installPrerequisites(ctx context.Context, p *progress, tools []toolset.Tool) error {
	var names, packages []string
	packager, install := findPackager()
	for name, need := range needs(tools) {
		if need.present(ctx) {
			continue
		}
		pkg, ok := need.packages[packager]
		if !ok {
			pkg = need.packages[""]
		}
		names = append(names, name)
		packages = append(packages, pkg)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	slices.Sort(packages)
	packages = slices.Compact(packages)
	if packager == "apt-get" && os.Geteuid() == 0 {
		return aptInstall(ctx, p, packages)
	}
	if packager == "" {
		return fmt.Errorf("install %s first and run again", strings.Join(names, " and "))
	}
	if packager != "brew" && os.Geteuid() != 0 {
		install = "sudo " + install
	}
	return fmt.Errorf("%s missing; run: %s %s", strings.Join(names, " and "), install, strings.Join(packages, " "))
}

func findPackager() (name, install string) {
	for _, packager := range packagers {
		if inPath(packager.name)(context.Background()) {
			return packager.name, packager.install
		}
	}
	return "", ""
}

// installTime bounds an installation that goes on after an interrupt.
const installTime = 10 * time.Minute

// aptInstall asks for the services that packages bring not to be started: this program
// is about binaries. Once packages are being unpacked an interrupt waits for them, since
// dpkg, when it is killed, leaves a database that has to be mended by hand.
func aptInstall(ctx context.Context, p *progress, packages []string) error {
	apt := func(ctx context.Context, args ...string) error {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=60"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "SYSTEMD_OFFLINE=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for us
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, tail(string(out), 15))
		}
		return nil
	}
	return p.during("installing "+strings.Join(packages, " "), func() error {
		updateErr := apt(ctx, "update")
		if ctx.Err() != nil {
			return ctx.Err()
		}
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), installTime)
		defer cancel()
		// What is installed counts: an unrelated source that fails to update does not matter.
		err := apt(whole, append([]string{"install", "-y", "--no-install-recommends"}, packages...)...)
		if err != nil {
			return errors.Join(err, updateErr)
		}
		return ctx.Err()
	})
}

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
