package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// EditFile is the file in which a person changes an object.
type EditFile struct{ Path string }

// NewEditFile makes an empty file that only its owner can read.
func NewEditFile(name string) (EditFile, error) {
	f, err := os.CreateTemp("", "agentctl-"+name+"-*.yaml")
	if err != nil {
		return EditFile{}, err
	}
	return EditFile{Path: f.Name()}, f.Close()
}

// Remove deletes the file.
func (f EditFile) Remove() {
	_ = os.Remove(f.Path) // a file left in the folder for temporary ones does no harm
}

// Edit writes header and text into the file, runs the person's editor on it, and
// returns what it left without lines of comment.
func (f EditFile) Edit(ctx context.Context, std Streams, header string, text []byte) ([]byte, error) {
	if err := os.WriteFile(f.Path, append([]byte(header), text...), 0o600); err != nil {
		return nil, err
	}
	editor := cmp.Or(os.Getenv("KUBE_EDITOR"), os.Getenv("EDITOR"), "vi")
	cmd := editorCommand(ctx, editor, f.Path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = std.In, beneath(std.Out), beneath(std.Err)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("editor %q: %w: name another with the KUBE_EDITOR environment variable", editor, err)
	}
	left, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, err
	}
	var kept []byte
	for line := range bytes.Lines(left) {
		if !bytes.HasPrefix(line, []byte("#")) {
			kept = append(kept, line...)
		}
	}
	return kept, nil
}

// editorCommand runs editor, which may have arguments and quotes, on path.
func editorCommand(ctx context.Context, editor, path string) *exec.Cmd {
	if runtime.GOOS == "windows" {
		words := append(strings.Fields(editor), path)
		return exec.CommandContext(ctx, words[0], words[1:]...)
	}
	return exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", path)
}
