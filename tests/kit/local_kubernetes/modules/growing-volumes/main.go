// A CSI driver for tests whose volumes can grow while they are used. Each is a tmpfs, because ext4 grows while it is
// mounted only with CAP_SYS_RESOURCE, which small test machines do not give. The driver runs on every machine, beside
// the provisioner and the resizer of Kubernetes.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	driverName = "growing.quorate.dev"
	topology   = driverName + "/node"
	version    = "1"
)

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	node     string
	endpoint string
	volumes  *volumes
}

func main() {
	node := flag.String("node", "", "the name of the machine")
	socket := flag.String("socket", "", "where the driver listens")
	endpoint := flag.String("endpoint", "", "the path of the socket for kubelet")
	registry := flag.String("registry", "", "the directory in which kubelet looks for drivers")
	root := flag.String("root", "/", "the root directory of the machine")
	directory := flag.String("directory", "/var/lib/growing-volumes", "where the machine has them")
	flag.Parse()
	served := &driver{node: *node, endpoint: *endpoint, volumes: &volumes{root: *root, directory: *directory}}
	failed := make(chan error)
	serve(*socket, failed, func(server *grpc.Server) {
		csi.RegisterIdentityServer(server, served)
		csi.RegisterControllerServer(server, served)
		csi.RegisterNodeServer(server, served)
	})
	serve(filepath.Join(*registry, driverName+"-reg.sock"), failed, func(server *grpc.Server) {
		registration.RegisterRegistrationServer(server, served)
	})
	log.Fatal(<-failed)
}

func serve(socket string, failed chan<- error, register func(*grpc.Server)) {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	register(server)
	go func() { failed <- server.Serve(listener) }()
}

// logged writes each call that fails. What is no status of gRPC is an internal error.
func logged(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	response, err := handle(ctx, request)
	if err == nil {
		return response, nil
	}
	log.Printf("%s: %v", info.FullMethod, err)
	if _, known := status.FromError(err); known {
		return nil, err
	}
	return nil, status.Error(codes.Internal, err.Error())
}

// Registration with kubelet, which looks for the socket.

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              driverName,
		Endpoint:          d.endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (d *driver) NotifyRegistrationStatus(
	_ context.Context, told *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !told.PluginRegistered {
		log.Fatalf("kubelet does not take the driver: %s", told.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// Identity

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: version}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	}
	response := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}},
	}}}
	for _, service := range services {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}},
		})
	}
	return response, nil
}

// Controller: volumes are made on the machine that the scheduler has chosen.

func (d *driver) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{
			Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		}},
	}}}, nil
}

func (d *driver) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	sizeBytes := request.GetCapacityRange().GetRequiredBytes()
	if request.GetName() == "" || sizeBytes <= 0 {
		return nil, status.Errorf(codes.InvalidArgument, "a volume %q of %d bytes", request.GetName(), sizeBytes)
	}
	if err := d.volumes.create(request.GetName(), sizeBytes); err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:           request.GetName(),
		CapacityBytes:      sizeBytes,
		AccessibleTopology: []*csi.Topology{d.here()},
	}}, nil
}

func (d *driver) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, d.volumes.remove(request.GetVolumeId())
}

func (d *driver) ValidateVolumeCapabilities(
	_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeCapabilities: request.GetVolumeCapabilities(),
		},
	}, nil
}

// Node

func (d *driver) here() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{topology: d.node}}
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, AccessibleTopology: d.here()}, nil
}

func (d *driver) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{
		Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{
			Type: csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		}},
	}}}, nil
}

func (d *driver) NodePublishVolume(
	_ context.Context, request *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, d.volumes.publish(request.GetVolumeId(), request.GetTargetPath())
}

func (d *driver) NodeUnpublishVolume(
	_ context.Context, request *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, d.volumes.unmount(request.GetTargetPath())
}

func (d *driver) NodeExpandVolume(
	_ context.Context, request *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	sizeBytes := request.GetCapacityRange().GetRequiredBytes()
	if err := d.volumes.grow(request.GetVolumeId(), sizeBytes); err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: sizeBytes}, nil
}
